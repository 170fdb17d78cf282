"""A pack's model card for Hugging Face, from its headers and from what people adopted; nothing is typed by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from recipe.pack import Pack, read_pack
from recipe.provenance import history_of
from runner.canon_entry import launch_command, launched, made_pack, order_field, taken_out, waiver_lines
from runner.decisions import Decided, current, decisions
from runner.digest import sha256_file
from runner.errors import InputError
from runner.ledger import Ledger
from runner.markdown import cell, table
from runner.model.product import PROVENANCE
from runner.model.verdict import Status
from runner.plan import PRODUCT

_GIB = 1 << 30


def render(folder: Path, ledger: Ledger) -> str:
    """The card of the pack in ``folder``.

    Raises InputError where the pack is broken, or where no adoption that stands is about this very pack.
    """
    pack = read_pack(folder)
    header, made = pack.header_digest(), decisions(ledger)
    found = [*current(made, "standing"), *current(made, "descriptive")]
    own = [each for each in found if _is_about(each.entry.subjects, pack)]
    if not own:
        raise InputError(
            "nobody has adopted a report about this pack",
            where=str(folder),
            expected=f"an adoption of a report about a pack with header digest {header}, and about these very bytes",
            found=", ".join(each.report.run for each in found) or "no adoption",
            next_step="`runner reports` lists the reports; `runner adopt RUN` takes one into the canon",
        )
    newest = own[0]
    front = yaml.safe_dump(_front(newest), sort_keys=False, allow_unicode=True).rstrip("\n")
    return (
        "\n".join(
            [
                "---",
                front,
                "---",
                "",
                f"# {cell(folder.resolve().name)}",
                "",
                "Written by `runner card` from the pack's headers and from signed reports. A figure holds for the",
                "conditions that stand beside it and for no others.",
                "",
                f"Header digest {header}; report {newest.entry.digest} of run {newest.report.run},",
                f"adopted by {newest.by}.",
                "",
                "## Composition",
                "",
                *table(("format", "source", "weights", "GiB"), _composition(pack)),
                "## Measured",
                "",
                *(line for each in own for line in _measured(each, ledger)),
                "## What you must patch and set",
                "",
                *_setting(newest, ledger),
                "## Licence and credits",
                "",
                f"Licence: {cell(order_field(newest.report, 'card', 'licence') or 'not stated in the order')}.",
                "",
                *(f"- {cell(name)}" for name in order_field(newest.report, "card", "credits") or ()),
            ]
        ).rstrip("\n")
        + "\n"
    )


def _is_about(subjects: Mapping[str, str], pack: Pack) -> bool:
    """Whether a report is about this pack to the byte: about what its recipe made, or else about what stood.

    The report of an overlay or a bake names the pack that stood before as well, which it does not recommend.
    """
    made = f"{PRODUCT}header" in subjects
    kind = PRODUCT if made else "pack."
    if subjects.get(f"{kind}header") != pack.header_digest():
        return False  # no payload is read for it
    found = {"payload": pack.payload_digest()}
    if made:
        note = pack.folder / PROVENANCE
        found["small_files"] = pack.small_files_digest()
        found["provenance"] = sha256_file(note) if note.is_file() else "none"
    return all(subjects.get(f"{kind}{name}", digest) == digest for name, digest in found.items())


def _front(newest: Decided) -> dict[str, Any]:
    """The front matter, as the hub reads it."""
    base = order_field(newest.report, "card", "base_model")
    front: dict[str, Any] = {"license": order_field(newest.report, "card", "licence") or "unknown"}
    front |= {"base_model": base, "base_model_relation": "quantized"} if base else {}
    return front | {"pipeline_tag": "text-generation", "tags": ["exl3", "vllm"]}


def _composition(pack: Pack) -> Iterator[tuple[object, ...]]:
    """Weights and bytes by format and source: formats and sizes from headers, sources from the product's provenance."""
    spliced = _spliced(pack.folder)
    weights: Counter[tuple[str, str]] = Counter()
    nbytes: Counter[tuple[str, str]] = Counter()
    counted = set()
    for entry in pack.tensors.values():
        name = entry.name.rpartition(".")[0]
        module = pack.modules.get(name)
        kind = f"exl3 {module.codebook}, {module.bits} bits" if module else entry.dtype
        key = (kind, "donor" if entry.name in spliced else "the pack's own")
        nbytes[key] += entry.nbytes
        if module is None:
            weights[key] += _product(entry.shape)
        elif name not in counted:
            counted.add(name)
            weights[key] += module.weights
    for key in sorted(nbytes):
        yield (*key, weights[key], f"{nbytes[key] / _GIB:.4f}")


def _spliced(folder: Path) -> frozenset[str]:
    """Tensors that an overlay took from its donor, and no later step of the chain made anew."""
    found: set[str] = set()
    for entry in history_of(folder):
        step = entry.get("provenance")
        told = step if isinstance(step, dict) else {}
        baked, taken = (told.get(part) for part in ("modules", "tensors"))
        if isinstance(baked, dict):
            found = {name for name in found if name.rpartition(".")[0] not in baked}
        if isinstance(taken, list):
            found |= {str(each.get("name")) for each in taken if isinstance(each, dict)}
    return frozenset(found)


def _product(shape: tuple[int, ...]) -> int:
    product = 1
    for side in shape:
        product *= side
    return product


def _measured(decided: Decided, ledger: Ledger) -> list[str]:
    report = decided.report
    rows = [
        (gate.name, gate.verdict, figure.name, f"{figure.value} {figure.unit}".strip(), figure.limit, report.run)
        for gate in ledger.whole(decided.entry).gates
        for figure in gate.figures
    ]
    passed = "every gate passed" if report.verdict is Status.PASS else f"verdict {report.verdict}"
    return [
        f"Order {report.order.name} on seat {report.seat.name} ({report.seat.label}), {report.started_at} to "
        f"{report.ended_at}: {passed}; adopted as {decided.adoption.scope}.",
        "",
        *waiver_lines(decided, ledger),
        *table(("gate", "verdict", "figure", "value", "limit", "run"), rows),
    ]


def _setting(decided: Decided, ledger: Ledger) -> list[str]:
    """Engine, patches and launch, as the adopted boot read itself back."""
    boot = launched(ledger.measured(decided.entry))
    patches = {name: digest for name, digest in decided.entry.subjects.items() if name.startswith(("patch", "tree."))}
    lines = table(("patch or source tree", "SHA-256"), sorted(patches.items()))
    if boot is None:
        return lines
    engine = f"{boot.engine.get('name', 'engine')} {boot.engine.get('version', '')}".strip()
    launch = launch_command(decided.report, boot, made=made_pack(decided) is not None)
    return [f"Engine: {cell(engine)}.", "", *lines, "```sh", launch, "```", "", *taken_out(decided)]


__all__ = ["render"]
