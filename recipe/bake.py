"""The recipe of a bake order: named linears coded in EXL3 and merged into the standing pack.

Order: resolve the modules from headers, measure the calibration's second moments, code layer by layer (each layer is
kept, so an interrupted bake goes on), merge into a new pack. Arguments, inputs and code are fixed at the beginning; a
bake that was begun with others is refused.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
from carve_kernels.exl3 import pack_format

from recipe import (
    bake_layers,
    merge,
    pack_write,
    payload,
    whole_folder,
)
from recipe.bake_coding import CONVERSION, QUANTISERS, Coded, Inputs, converted, relative_error, searched
from recipe.bake_modules import resolve
from recipe.closure import index_faults, json_object, weight_files
from recipe.headers import Entry, read_header
from recipe.mini.dequantise import coded as coded_linear
from recipe.pack import Pack, inspect, read_pack
from recipe.product import Job, pack_digests
from recipe.shard_write import digest_of
from runner.digest import sha256_file, sha256_json, sha256_tree
from runner.errors import InputError, StateError
from runner.model.order.bake import Bake
from runner.model.product import PROVENANCE, Estimate, Product, Verified
from runner.paths import source_root

_WEIGHTS_A_SECOND = 60_000
"""Of the native search on one core, at the bits that need longest."""
_CODE = (
    "recipe/bake.py",
    "recipe/bake_coding.py",
    "recipe/bake_layers.py",
    "recipe/bake_modules.py",
    "recipe/calibration.py",
    "recipe/exllamav3_conversion.py",
    "recipe/merge.py",
    "kernels/cpu/quantise.cpp",
    "kernels/cpu/quantise_step.inc",
)
_ERROR_TOLERANCE = 0.01
"""Relative; errors are noted with six digits."""


def estimate(job: Job) -> Estimate:
    """Modules, bits and bytes, from headers. Raises InputError for a bake that does not fit its inputs."""
    given = _inputs(job)
    bits: dict[int, int] = {}
    for target in given.targets:
        bits[target.bits] = bits.get(target.bits, 0) + 1
    counts = {f"modules at K={k}": str(count) for k, count in sorted(bits.items())}
    counts["bytes of weights before"] = str(sum(entry.nbytes for entry in given.plan.dropped.values()))
    counts["bytes of codes after"] = str(sum(given.size(target) * target.bits // 8 for target in given.targets))
    counts["files rewritten"] = f"{len(given.plan.rewritten)} of {len(given.base.headers)}"
    seconds = 20 + sum(map(given.size, given.targets)) // _WEIGHTS_A_SECOND
    return Estimate(seconds=seconds, counts=counts)


def make(job: Job) -> Product:
    """Code, merge, let the pack appear.

    Raises InputError for inputs that do not fit and for calibration text that the gates measure on, StateError for a
    bake that was begun with other arguments, inputs or code and where the disk stands in the way.
    """
    given = _inputs(job)
    try:
        job.work.mkdir(parents=True, exist_ok=True)
        identity = _identity(job, given, job.work / "base.json")
        if job.product.exists():
            return _made_before(job, identity)
        with whole_folder.building(job.product) as building:
            _bake(job, given, identity, building)
    except OSError as error:
        raise StateError(
            "the bake cannot be written",
            where=str(error.filename or job.product),
            found=error.strerror or str(error),
            next_step="free the disk or make the folder writable, then `runner execute --resume`",
        ) from error
    return _product(job)


def _bake(job: Job, given: Inputs, identity: dict[str, Any], building: Path) -> None:
    marks = {header.file: payload.identity(header.file) for header in given.base.headers}
    folder = bake_layers.begin(job.work / "layers", identity, restart=False)
    made = converted(job, given) if given.recipe.quantiser == CONVERSION else searched(job, given, folder)
    coded = _planted(given.recipe, made.entries, job.work)
    whole_folder.fresh(building)
    merge.merge(given.base, given.plan, coded, building)
    modules = _modules(given, coded, made)
    provenance = {"identity": identity, "dropped": sorted(given.plan.dropped), "modules": modules}
    pack_write.write_json(building / PROVENANCE, provenance)
    changed = [file.name for file, mark in marks.items() if payload.identity(file) != mark]
    if _small_files(job, given) != identity["small files"]:
        changed.append("a small file")
    if changed:
        raise StateError("the standing pack changed during the bake", found=", ".join(changed))
    whole_folder.publish(building, job.product)


def verify(job: Job, product: Product) -> Verified:
    """The pack again, all of it: kept bytes, dropped names, bits, configuration, every module's error recomputed."""
    given, file = _inputs(job), job.product / PROVENANCE
    if not file.is_file():
        return Verified(digests={}, summary=product.summary, faults=(f"{PROVENANCE} is missing",), provenance="")
    text = file.read_text(encoding="utf-8", errors="replace")
    provenance = json_object(text.encode()) or {}
    if not isinstance(provenance.get("modules"), dict) or not isinstance(provenance.get("identity"), dict):
        fault = f"{PROVENANCE} is not that of a bake"
        return Verified(digests={}, summary=product.summary, faults=(fault,), provenance=text)
    pack, broken = inspect(job.product)
    found = [f"{fault.what}: {fault.where}: expected {fault.expected}, found {fault.found}" for fault in broken]
    digests = {}
    if not broken:
        found += merge.faults(given.base, pack, given.plan, given.targets)
        found += _other_errors(given, pack, provenance["modules"])
        if provenance["identity"] != _identity(job, given, None):
            found.append("the product was made from other inputs, arguments or code")
        digests = _digests(job, provenance)
    return Verified(digests=digests, summary=product.summary, faults=tuple(found), provenance=text)


def _inputs(job: Job) -> Inputs:
    recipe, base = job.recipe, read_pack(job.standing)
    assert isinstance(recipe, Bake), "the order's kind types its recipe"
    weights = base.tensors if recipe.source is None else _source(job.root / recipe.source)
    targets = resolve(recipe, weights)
    fault = recipe.planted_fault
    if fault is not None and fault.module not in {target.name for target in targets}:
        raise InputError("the planted fault names no module of this bake", where=fault.module)
    return Inputs(recipe, base, weights, targets, merge.plan_merge(base, targets))


def _source(folder: Path) -> dict[str, Entry]:
    files = weight_files(folder)
    if not files:
        raise InputError("the source has no weights", where=str(folder), expected="safetensors files", found="none")
    headers = [read_header(file) for file in files]
    for fault in index_faults(folder, headers):
        raise fault
    return {entry.name: entry for header in headers for entry in header.entries}


def _identity(job: Job, given: Inputs, kept: Path | None) -> dict[str, Any]:
    """Everything the product's bytes follow from; ``kept`` as in :func:`recipe.payload.file_digests`."""
    root, wish = source_root(), given.recipe.calibration
    needed = sorted({target.weight for target in given.targets})
    code = [root / name for name in _CODE] + sorted((root / "kernels/carve_kernels/exl3").glob("*.py"))
    return {
        "arguments": given.recipe.model_dump(mode="json"),
        "base": {"header": given.base.header_digest(), "payload": given.base.payload_digest(kept)},
        "small files": _small_files(job, given),
        "weights": sha256_json({name: _entry_digest(given.weights[name]) for name in needed}),
        "calibration": sha256_file(job.root / wish.texts) if wish else None,
        "code": sha256_tree(root, code),
    }


def _small_files(job: Job, given: Inputs) -> dict[str, str]:
    """Configuration, tokenizer and whatever is copied; of a source of its own what is read there."""
    found = {"base": given.base.small_files_digest()}
    if given.recipe.source is not None:
        source = job.root / given.recipe.source
        found["source"] = sha256_tree(source, sorted(source.glob("*.json")))
    return found


def _entry_digest(entry: Entry) -> str:
    return sha256_json([entry.dtype, list(entry.shape), digest_of(entry.file, entry.start, entry.nbytes)])


def _planted(recipe: Bake, coded: Mapping[str, Entry], work: Path) -> Mapping[str, Entry]:
    """The coded tensors, with the order's deliberate error in them."""
    fault = recipe.planted_fault
    if fault is None:
        return coded
    name = f"{fault.module}.svh"
    with np.errstate(over="ignore"):  # a factor that float16 cannot hold is a fault too
        wrong = (coded[name].read().astype(np.float64) * float(Decimal(fault.factor))).astype(np.float16)
    file = work / "planted.safetensors"
    pack_write.write_shard(file, {name: wrong})
    return {**coded, **{entry.name: entry for entry in read_header(file).entries}}


def _modules(given: Inputs, coded: Mapping[str, Entry], made: Coded) -> dict[str, Any]:
    """Where every module comes from, its bits, its errors and the digests of its tensors."""
    return {
        target.name: made.errors[target.name]
        | {
            "weight": target.weight,
            "slice": f"{target.slice + 1} of {target.slices}",
            "calibrated": target.name in made.calibrated,
            "file": given.plan.homes[target.name],
            "tensors": {
                name.rpartition(".")[2]: _entry_digest(entry)
                for name, entry in coded.items()
                if name.rpartition(".")[0] == target.name
            },
        }
        for target in given.targets
    }


def _other_errors(given: Inputs, pack: Pack, noted: Mapping[str, Any]) -> list[str]:
    """Modules of the pack that differ from their plain weight by another error than the bake noted."""
    found = []
    for target in given.targets:
        if target.name not in pack.modules:
            continue
        facts = noted.get(target.name)
        facts = facts if isinstance(facts, dict) else {}
        with np.errstate(over="ignore", invalid="ignore"):  # what is no finite number is a fault below
            now = relative_error(coded_linear(pack, target.name), given.weight(target))
        told = facts.get("relative_error", -1.0)
        told = float(told) if isinstance(told, int | float) else math.nan
        # Asked for what must hold: a comparison with NaN never does.
        if not (math.isfinite(now) and abs(now - told) <= _ERROR_TOLERANCE * max(now, told) + 1e-6):
            found.append(f"{target.name} differs from its weight by {now:.6f} of its square, the bake noted {told}")
        found += _other_tensors(pack, target.name, facts.get("tensors"))
    return found


def _other_tensors(pack: Pack, module: str, noted: object) -> list[str]:
    """Tensors of one module that are not those whose digests the bake noted, where it did."""
    if noted is None:
        return []
    names = pack_format.tensor_names(module, pack.modules[module].codebook)
    now = {name.rpartition(".")[2]: _entry_digest(pack.tensors[name]) for name in names}
    told = noted if isinstance(noted, dict) else {}
    return [f"{module}.{part} is not what the bake noted" for part in now | told if now.get(part) != told.get(part)]


def _made_before(job: Job, identity: dict[str, Any]) -> Product:
    """The product of an earlier attempt, where it is of the same bake."""
    file = job.product / PROVENANCE
    before = (json_object(file.read_bytes()) or {}).get("identity") if file.is_file() else None
    if before != identity:
        raise StateError(
            "another product lies in this place", where=str(job.product), next_step="start a new run, or remove it"
        )
    whole_folder.tidy(job.product)
    return _product(job)


def _product(job: Job) -> Product:
    provenance = json.loads((job.product / PROVENANCE).read_bytes())
    modules: dict[str, Any] = provenance["modules"]
    summary = {"modules": str(len(modules)), "dropped tensors": str(len(provenance["dropped"]))}
    for bits in sorted({facts["bits"] for facts in modules.values()}):
        for kind, label in (("relative_error", "weights"), ("output_error", "outputs (proxy)")):
            errors = {
                name: facts[kind]
                for name, facts in modules.items()
                if facts["bits"] == bits and facts[kind] is not None
            }
            if errors:
                worst = max(errors, key=lambda name: errors[name])
                mean = sum(errors.values()) / len(errors)
                summary[f"K={bits} error of {label}"] = f"{mean:.6f} mean, {errors[worst]:.6f} most ({worst})"
    return Product(kind="pack", folder=str(job.product), digests=_digests(job, provenance), summary=summary)


def _digests(job: Job, provenance: dict[str, Any]) -> dict[str, str]:
    return pack_digests(job.product) | {"inputs": sha256_json(provenance["identity"])}


__all__ = ["QUANTISERS", "estimate", "make", "verify"]
