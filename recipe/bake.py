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
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import numpy as np
from carve_kernels.exl3 import pack_format
from numpy.typing import NDArray

from recipe import bake_layers, calibration, merge, pack_write, payload, whole_folder
from recipe.bake_coding import CONVERSION, NATIVE, QUANTISERS, Inputs, converted, relative_error, searched
from recipe.bake_modules import refuse_parted, resolve
from recipe.closure import index_faults, json_object, weight_files
from recipe.disk import telling
from recipe.headers import Entry, read_header
from recipe.mini.dequantise import coded as coded_linear
from recipe.pack import Pack, inspect, read_pack
from recipe.product import Job, pack_digests
from recipe.provenance import history_of, provenance_faults
from recipe.shard_write import digest_of
from runner.digest import sha256_bytes, sha256_file, sha256_json, sha256_tree
from runner.errors import InputError, StateError
from runner.model.order.bake import Bake
from runner.model.product import PROVENANCE, Estimate, Product, Verified
from runner.paths import source_root

_WEIGHTS_A_SECOND = 60_000
"""Of the native search on one core, at the bits that need longest."""
_CODE = (
    "recipe/*.py",
    "recipe/mini/*.py",
    "kernels/carve_kernels/*.py",
    "kernels/carve_kernels/exl3/*.py",
    "kernels/cpu/quantise.cpp",
    "kernels/cpu/quantise_step.inc",
)
"""What a bake's bytes follow from. Whole folders: a list of single files forgets the one that was added last."""
_CLAIMED = {"exllamav3": ("output_error",), CONVERSION: ("output_error", "calibrated")}
"""By quantiser: what its library alone can say, and nothing here compares."""
_ERROR_TOLERANCE = 0.01
"""Relative; errors are noted with six digits."""


@telling("the inputs of the bake cannot be read")
def estimate(job: Job) -> Estimate:
    """Modules, bits and bytes, from headers.

    Raises InputError for a bake that does not fit its inputs, and for one whose product no engine of ours would serve.
    """
    given = _inputs(job)
    refuse_parted(given.base, given.recipe.codebook, given.targets)
    if given.recipe.calibration is not None:
        calibration.documents_of(job, given.recipe.calibration)
    bits: dict[int, int] = {}
    for target in given.targets:
        bits[target.bits] = bits.get(target.bits, 0) + 1
    counts = {f"modules at K={k}": str(count) for k, count in sorted(bits.items())}
    counts["bytes of weights before"] = str(sum(entry.nbytes for entry in given.plan.dropped.values()))
    counts["bytes of codes after"] = str(sum(given.size(target) * target.bits // 8 for target in given.targets))
    counts["files rewritten"] = f"{len(given.plan.rewritten)} of {len(given.base.headers)}"
    seconds = 20 + sum(map(given.size, given.targets)) // _WEIGHTS_A_SECOND
    return Estimate(seconds=seconds, counts=counts)


@telling("the bake cannot be written")
def make(job: Job) -> Product:
    """Code, merge, let the pack appear.

    Raises InputError for inputs that do not fit and for calibration text that the gates measure on, StateError for a
    bake that was begun with other arguments, inputs or code and where the disk stands in the way.
    """
    given = _inputs(job)
    job.work.mkdir(parents=True, exist_ok=True)
    identity = _identity(job, given, job.work / "base.json") | _library(given.recipe.quantiser)
    if job.product.exists():
        return _made_before(job, identity)
    with whole_folder.building(job.product) as building:
        _bake(job, given, identity, building)
    return _product(job)


def _bake(job: Job, given: Inputs, identity: dict[str, Any], building: Path) -> None:
    marks = {header.file: payload.identity(header.file) for header in given.base.headers}
    folder = bake_layers.begin(job.work / "layers", identity, restart=False)
    made = converted(job, given) if given.recipe.quantiser == CONVERSION else searched(job, given, folder)
    coded = _planted(given.recipe, made.entries, job.work)
    whole_folder.fresh(building)
    merge.merge(given.base, given.plan, coded, building)
    facts = {name: _place(given, name, coded) | made.facts[name] for name in given.names}
    pack_write.write_json(building / PROVENANCE, _provenance(job, given, identity, facts))
    changed = [file.name for file, mark in marks.items() if payload.identity(file) != mark]
    if _small_files(job, given) != identity["small files"]:
        changed.append("a small file")
    if changed:
        raise StateError("the standing pack changed during the bake", found=", ".join(changed))
    whole_folder.publish(building, job.product)


@telling("the bake cannot be read again")
def verify(job: Job, product: Product) -> Verified:
    """The pack again, all of it: kept bytes, dropped names, bits, configuration, every module's errors recomputed."""
    given, file = _inputs(job), job.product / PROVENANCE
    if not file.is_file():
        return Verified(digests={}, summary=product.summary, faults=(f"{PROVENANCE} is missing",), provenance="")
    text = file.read_text(encoding="utf-8", errors="replace")
    told = json_object(text.encode()) or {}
    if not isinstance(told.get("modules"), dict) or not isinstance(told.get("identity"), dict):
        fault = f"{PROVENANCE} is not that of a bake"
        return Verified(digests={}, summary=product.summary, faults=(fault,), provenance=text)
    pack, broken = inspect(job.product)
    found = [f"{fault.what}: {fault.where}: expected {fault.expected}, found {fault.found}" for fault in broken]
    digests = {}
    if not broken:
        found += merge.faults(given.base, pack, given.plan, given.targets)
        facts = {name: _place(given, name, pack.tensors) for name in given.names if name in pack.modules}
        own = given.recipe.quantiser != CONVERSION
        hessians = calibration.moments(job, given.recipe, facts) if own else {}
        for name, fact in facts.items():
            noted = told["modules"].get(name)
            noted = noted if isinstance(noted, dict) else {}
            fact.update(_facts(given, pack, name, noted, hessians))
            before, now = noted.get("relative_error"), fact["relative_error"]
            if now != before:
                found.append(f"{name} differs from its weight by {now} of its square, the bake noted {before}")
                fact["relative_error"] = before
        library = {name: value for name, value in told["identity"].items() if name == "library"}  # of another machine
        found += provenance_faults(told, _provenance(job, given, _identity(job, given, None) | library, facts))
        digests = _digests(job, told)
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
    return {
        "arguments": given.recipe.model_dump(mode="json"),
        "base": {"header": given.base.header_digest(), "payload": given.base.payload_digest(kept)},
        "small files": _small_files(job, given),
        "weights": sha256_json({name: _entry_digest(given.weights[name]) for name in needed}),
        "calibration": sha256_file(job.root / wish.texts) if wish else None,
        "code": sha256_tree(root, [file for pattern in _CODE for file in root.glob(pattern)]),
    }


def _library(quantiser: str) -> dict[str, str]:
    """The foreign library that codes, as it is installed here, with the digest of its list of files.

    Empty for our own quantiser; a conversion keeps its own record of what made it.
    """
    if quantiser in (NATIVE, CONVERSION):
        return {}
    try:
        found = distribution(quantiser)
    except PackageNotFoundError:  # not installed by a package manager; the quantiser itself says so where it is missing
        return {"library": "no distribution"}
    return {"library": f"{found.version} {sha256_bytes((found.read_text('RECORD') or '').encode())}"}


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
    with np.errstate(over="ignore"):
        wrong = (coded[name].read().astype(np.float64) * float(Decimal(fault.factor))).astype(np.float16)
    if not (wrong.any() and np.isfinite(wrong).all()):
        raise InputError(
            "the planted fault makes scales that no pack may hold, so no gate would see it",
            where=name,
            expected="a factor that leaves them finite and not all zero",
            found=fault.factor,
        )
    file = work / "planted.safetensors"
    pack_write.write_shard(file, {name: wrong})
    return {**coded, **{entry.name: entry for entry in read_header(file).entries}}


def _provenance(
    job: Job, given: Inputs, identity: dict[str, Any], facts: Mapping[str, dict[str, Any]]
) -> dict[str, Any]:
    earlier = {"history": history_of(given.base.folder)}
    if given.recipe.source is not None:
        earlier["history of the weights"] = history_of(job.root / given.recipe.source)
    told = {name: history for name, history in earlier.items() if history}
    return told | {"identity": identity, "dropped": sorted(given.plan.dropped), "modules": facts}


def _place(given: Inputs, name: str, tensors: Mapping[str, Entry]) -> dict[str, Any]:
    """Where a module comes from, where it stands, and the digests of its parts among ``tensors``."""
    target = given.names[name]
    parts = {part: tensors.get(f"{name}.{part}") for part in pack_format.PARTS}
    return {
        "weight": target.weight,
        "slice": f"{target.slice + 1} of {target.slices}",
        "file": given.plan.homes[name],
        "tensors": {part: _entry_digest(entry) for part, entry in parts.items() if entry is not None},
    }


def _facts(
    given: Inputs, pack: Pack, name: str, noted: Mapping[str, Any], hessians: Mapping[str, NDArray[np.floating]]
) -> dict[str, Any]:
    """Bits, errors and calibration of a module, computed again; what only a library can say stays as it is claimed."""
    found: dict[str, Any]
    coded, weight = coded_linear(pack, name), given.weight(given.names[name])
    with np.errstate(over="ignore", invalid="ignore"):  # what is no finite number agrees with nothing
        found = {
            "bits": pack.modules[name].bits,
            "relative_error": _agreed(relative_error(coded, weight), noted.get("relative_error")),
        }
        if given.recipe.quantiser == NATIVE:
            hessian = hessians.get(name)
            error = None if hessian is None else relative_error(coded, weight, hessian)
            found["output_error"] = _agreed(error, noted.get("output_error"))
        elif isinstance(claimed := noted.get("claimed"), dict):
            found["claimed"] = {key: claimed.get(key) for key in _CLAIMED[given.recipe.quantiser]}
    if given.recipe.quantiser != CONVERSION:
        found["calibrated"] = name in hessians
    return found


def _agreed(now: float | None, told: object) -> object:
    """The figure as it was noted, where it is the one found now; else the one found, as JSON can hold it."""
    if now is None or not math.isfinite(now):
        return None if now is None else str(now)
    close = isinstance(told, float | int) and abs(now - told) <= _ERROR_TOLERANCE * max(now, told) + 1e-6
    return told if close else round(now, 6)


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
        same = {name: facts for name, facts in modules.items() if facts["bits"] == bits}
        told = {
            "weights": {name: facts.get("relative_error") for name, facts in same.items()},
            "outputs (proxy)": {name: facts.get("output_error") for name, facts in same.items()},
            "outputs (proxy, as exllamav3 says)": {
                name: facts.get("claimed", {}).get("output_error") for name, facts in same.items()
            },
        }
        for label, figures in told.items():
            errors = {name: value for name, value in figures.items() if value is not None}
            if errors:
                worst = max(errors, key=lambda name: errors[name])
                mean = sum(errors.values()) / len(errors)
                summary[f"K={bits} error of {label}"] = f"{mean:.6f} mean, {errors[worst]:.6f} most ({worst})"
    return Product(kind="pack", folder=str(job.product), digests=_digests(job, provenance), summary=summary)


def _digests(job: Job, provenance: dict[str, Any]) -> dict[str, str]:
    return pack_digests(job.product) | {"inputs": sha256_json(provenance["identity"])}


__all__ = ["QUANTISERS", "estimate", "make", "verify"]
