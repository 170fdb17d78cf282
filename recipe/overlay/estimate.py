"""What an overlay will take: from headers on this disk, without network and without writing."""

from __future__ import annotations

from pathlib import Path

from recipe.disk import telling
from recipe.headers import Entry
from recipe.mini.donors import PLAIN_TOOL, TOOLS
from recipe.overlay.configuration import check_configurations, edited_configuration
from recipe.overlay.donor import tool_of
from recipe.overlay.shards import inside_store
from recipe.overlay.splice import dropped_of, refuse_other_kind, resolve
from recipe.overlay.target import overlay_of
from recipe.pack import Pack, read_pack
from recipe.product import Estimate, Job
from runner.errors import InputError
from runner.model.order import Overlay
from runner.model.order.overlay import PackSource

_BYTES_A_SECOND = 400_000_000
"""Reading twice, hashing and writing once, on a plain disk."""
_SECONDS_A_MODULE = 2
"""Coding one matrix of the small pack again, on one core."""
_MARKER = 4
_UNKNOWN = "known once its headers are read"


@telling("the inputs of the overlay cannot be read")
def estimate(job: Job) -> Estimate:
    """See :class:`recipe.product.Recipe`."""
    recipe = overlay_of(job)
    _tool_fits(recipe)
    made = _made_first(recipe)
    source = _here(job, recipe.source)
    edited_configuration(recipe, source)
    _shareable(job, source)
    whole = sum(header.file.stat().st_size for header in source.headers)
    counts = {"files": str(len(source.headers)), "bytes read": str(2 * whole)}
    seconds = 1 + whole // _BYTES_A_SECOND
    if made:
        counts["source"] = "made first by a tool: what is replaced is known then"
        for layer in recipe.layers.values():
            prefix = f"{layer}.{recipe.experts}."
            there = [name for name in source.tensors if name.startswith(prefix)]
            refuse_other_kind(recipe, source, layer, there or [prefix])
    else:
        counts |= _replaced(recipe, source)
    for role, wanted in (("source", recipe.source), ("donor", recipe.donor)):
        if wanted is not None and wanted.generated is not None:
            tool_of(wanted.generated)
            seconds += _tool_seconds(source, wanted)
            counts[f"{role} made by"] = wanted.generated.tool
    if recipe.donor.pack is not None and not made:
        plan = resolve(recipe, source, read_pack(job.root / recipe.donor.pack).tensors)
        check_configurations(recipe, plan)
        counts |= {"tensors in": str(len(plan.splices)), "bytes in": str(plan.nbytes_in)}
    elif recipe.donor.generated is not None:
        counts["bytes in"] = str(_made_bytes(recipe, source, recipe.donor.generated.bits))
    else:
        counts["bytes in"] = _UNKNOWN
    return Estimate(seconds=seconds, counts=counts)


def _made_first(recipe: Overlay) -> bool:
    """Whether a tool makes the source before it is changed."""
    return recipe.source is not None and recipe.source.generated is not None


def _tool_fits(recipe: Overlay) -> None:
    """InputError for a donor whose tool makes nothing that the overlay takes: the product would be the source again."""
    made = recipe.donor.generated
    if made is None:
        return
    own = {layer for layer in recipe.layers if layer.rpartition(".")[2] in map(str, made.layers)}
    if left := sorted(recipe.layers.keys() - own):
        raise InputError(
            "the donor's tool leaves a layer as it is",
            where="recipe.donor.generated",
            expected=f"layers that hold {', '.join(left)}",
            found=f"layers {', '.join(map(str, made.layers))}",
        )
    if made.tool == PLAIN_TOOL:
        raise InputError(
            "the donor's tool makes experts that are not EXL3",
            where="recipe.donor.generated.tool",
            expected=", ".join(sorted(TOOLS.keys() - {PLAIN_TOOL})),
            found=made.tool,
        )


def _here(job: Job, wanted: PackSource | None) -> Pack:
    folder: Path = job.standing if wanted is None or wanted.pack is None else job.root / wanted.pack
    return read_pack(folder)


def _shareable(job: Job, source: Pack) -> None:
    """StateError where files are to be linked and do not lie in the store."""
    if overlay_of(job).unchanged == "link" and not _made_first(overlay_of(job)):
        for header in source.headers:
            inside_store(job, header.file)


def _replaced(recipe: Overlay, source: Pack) -> dict[str, str]:
    gone: list[Entry] = [entry for entries in dropped_of(recipe, source).values() for entry in entries]
    files = {entry.file.name for entry in gone}
    return {
        "tensors out": str(len(gone)),
        "bytes out": str(sum(entry.nbytes for entry in gone)),
        "files rewritten": ", ".join(sorted(files)),
    }


def _made_bytes(recipe: Overlay, standing: Pack, bits: int | None) -> int:
    """What a tool makes of the standing pack's experts: codes at ``bits`` or as they are, two vectors and a marker."""
    prefixes = tuple(f"{layer}.{recipe.experts}." for layer in recipe.layers)
    own = [module for name, module in standing.modules.items() if name.startswith(prefixes)]
    return sum(
        int(one.weights * (bits or one.bits)) // 8 + 2 * (one.in_features + one.out_features) + _MARKER for one in own
    )


def _tool_seconds(source: Pack, wanted: PackSource) -> int:
    generated = wanted.generated
    if generated is None or generated.tool != "requantised-experts":
        return 1
    own = [
        name for name in source.modules if any(f".layers.{layer}.mlp.experts." in name for layer in generated.layers)
    ]
    return _SECONDS_A_MODULE * len(own)
