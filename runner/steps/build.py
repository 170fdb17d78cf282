"""Native libraries of the candidate, its watermark and the knock-outs, and the digests of what judges and is judged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from carve_kernels.build import build as build_library

from recipe.pack import read_pack
from runner.digest import sha256_file, sha256_tree
from runner.model.order import KernelOrder, WorkOrder
from runner.model.seat import SeatManifest
from runner.paths import source_root
from runner.plan_layout import KNOCK_OUTS
from runner.steps.state import Run

GRADERS = ("runner", "serve", "recipe")
"""Trees of this checkout whose code plans, serves, measures and judges."""


def build(run: Run) -> Run:
    """Build (or find in the cache) every library the plan may load. Raises InputError with the compiler's words."""
    native = run.manifest.adapter != "fake"
    built = build_libraries(wanted(run.order.order), native=native)
    subjects = subjects_of(built) | (pack_subjects(run.manifest) if native else {})
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


def subjects_of(libraries: dict[str, Path]) -> dict[str, str]:
    """Digests by subject name: ``library.<variant>`` and ``tree.<grader>``."""
    root = source_root()
    subjects = {f"library.{name}": sha256_file(path) for name, path in libraries.items() if path.is_file()}
    for tree in GRADERS:
        subjects[f"tree.{tree}"] = sha256_tree(root, (root / tree).rglob("*.py"))
    return subjects


def pack_subjects(manifest: SeatManifest) -> dict[str, str]:
    """Digests of the served pack. Raises InputError where it is missing or broken."""
    pack = read_pack(source_root() / manifest.pack)
    return {"pack.header": pack.header_digest(), "pack.payload": pack.payload_digest()}
