"""Native libraries of the candidate, its watermark and the knock-outs, and the digests of what judges and is judged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from carve_kernels.build import build as build_library
from carve_kernels.registry import sources_folder

from recipe.pack import read_pack
from runner.brief.render import brief_of
from runner.craft.candidate import laid_over, taken, toy
from runner.craft.candidate import subjects as candidate_subjects
from runner.digest import sha256_bytes, sha256_file, sha256_package, sha256_tree
from runner.model.order import KernelOrder, WorkOrder
from runner.model.seat import SeatManifest
from runner.paths import source_root
from runner.plan_layout import KNOCK_OUTS
from runner.steps.state import Run
from serve.adapters.fake import toy_record
from serve.adapters.process import installed_engine
from serve.witness.build import witness_library

GRADERS = ("runner", "serve", "recipe", "kernels/carve_kernels")
"""Trees of this checkout whose code plans, serves, measures and judges."""

IN_THE_ENGINE = ("plugin", "witness")
"""Trees below ``serve`` that every rank imports and answers for."""


def build(run: Run) -> Run:
    """Build (or find in the cache) every library the plan may load. Raises InputError with the compiler's words."""
    native = run.manifest.adapter != "fake"
    frozen = candidate_libraries(run, native=native)
    others = tuple(name for name in wanted(run.order.order) if name not in frozen)
    built = frozen | build_libraries(others, native=native)
    subjects = subjects_of(built) | engine_subjects(run.manifest) | brief_subject(run) | candidate_subjects(run.folder)
    subjects |= pack_subjects(run.manifest) if native else {}
    return replace(run, built=replace(run.built, libraries=built, subjects=subjects))


def wanted(order: WorkOrder) -> tuple[str, ...]:
    """Variants whose libraries this order needs."""
    if not isinstance(order, KernelOrder):
        return ("incumbent",)
    candidate = order.candidate
    marked = (f"{candidate.variant}-watermark",) if any(gate.name == "watermark" for gate in order.gates) else ()
    return (candidate.incumbent, candidate.variant, *marked, *KNOCK_OUTS)


def build_libraries(variants: tuple[str, ...], *, native: bool) -> dict[str, Path]:
    """Library of each variant; the fake seat brings its variants itself and names them."""
    if not native:
        return {variant: Path(variant) for variant in variants}
    return {variant: build_library(variant) for variant in variants}


def candidate_libraries(run: Run, *, native: bool) -> dict[str, Path]:
    """The candidate and its watermark from the files that were frozen; none where the checkout's own are judged."""
    order = run.order.order
    if not isinstance(order, KernelOrder) or taken(run.folder) is None:
        return {}
    variant = order.candidate.variant
    if not native:
        return {variant: Path(toy(run.folder, order.candidate.sources) or variant)}
    sources = laid_over(run.folder, sources_folder())
    return {name: build_library(name, sources) for name in wanted(order) if name.removesuffix("-watermark") == variant}


def subjects_of(libraries: dict[str, Path]) -> dict[str, str]:
    """Digests by subject name: ``library.<variant>`` and ``tree.<grader>``."""
    root = source_root()
    subjects = {f"library.{name}": sha256_file(path) for name, path in libraries.items() if path.is_file()}
    for tree in GRADERS:
        subjects[f"tree.{Path(tree).name}"] = sha256_tree(root, (root / tree).rglob("*.py"))
    for tree in IN_THE_ENGINE:
        subjects[f"tree.{tree}"] = sha256_package(root / "serve" / tree)
    return subjects


def engine_subjects(manifest: SeatManifest) -> dict[str, str]:
    """Digests of the engine that serves and of the native witness in it. Raises SeatError where it is not installed."""
    if manifest.adapter == "fake":
        return {"engine.record": toy_record()}
    return {
        "engine.record": installed_engine(manifest.distribution)["record"],
        "witness.library": sha256_file(witness_library()),
    }


def brief_subject(run: Run) -> dict[str, str]:
    """Digest of the brief that the order's craftsperson was given; a ``gate`` order has none."""
    if not isinstance(run.order.order, KernelOrder):
        return {}
    return {"brief": sha256_bytes(brief_of(run.folder / "order.yaml", run.manifest.name).encode())}


def pack_subjects(manifest: SeatManifest) -> dict[str, str]:
    """Digests of the served pack. Raises InputError where it is missing or broken."""
    pack = read_pack(source_root() / manifest.pack)
    return {"pack.header": pack.header_digest(), "pack.payload": pack.payload_digest()}
