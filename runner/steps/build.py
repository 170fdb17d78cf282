"""Native libraries of the candidate, its watermark and the knock-outs, and the digests of what judges and is judged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from carve_kernels.build import build as build_library
from carve_kernels.cuda.build import build as build_gpu_library

from recipe.pack import read_pack
from runner.digest import sha256_file, sha256_tree
from runner.model.order import KernelOrder, WorkOrder
from runner.model.seat import SeatManifest
from runner.paths import source_root
from runner.plan_layout import KNOCK_OUTS, desk_builds
from runner.steps.state import Built, Run

GRADERS = {"runner": "runner", "serve": "serve", "recipe": "recipe", "carve-kernels": "kernels/carve_kernels"}
"""Trees of this checkout whose code plans, serves, measures and judges, by the name of their subject."""


_WITHOUT_PACK = frozenset({"fake", "desk"})


def build(run: Run) -> Run:
    """Build (or find in the cache) every library the plan may load. Raises InputError with the compiler's words."""
    adapter = run.manifest.adapter
    built = build_libraries(wanted(run.order.order, adapter), adapter)
    subjects = subjects_of(built) | (pack_subjects(run.manifest) if adapter not in _WITHOUT_PACK else {})
    return replace(run, built=Built(built, subjects))


def wanted(order: WorkOrder, adapter: str) -> tuple[str, ...]:
    """Variants whose libraries this order needs on a seat of this adapter."""
    if not isinstance(order, KernelOrder):
        return ("incumbent",)
    candidate = order.candidate
    if adapter == "desk":  # its incumbents are libraries of the desk's own host
        return desk_builds(candidate.variant)
    marked = (f"{candidate.variant}-watermark",) if any(gate.name == "watermark" for gate in order.gates) else ()
    return (candidate.incumbent, candidate.variant, *marked, *KNOCK_OUTS)


def build_libraries(variants: tuple[str, ...], adapter: str) -> dict[str, Path]:
    """Library of each variant; the fake seat brings its variants itself and names them, a desk seat is a GPU's."""
    if adapter == "fake":
        return {variant: Path(variant) for variant in variants}
    make = build_gpu_library if adapter == "desk" else build_library
    return {variant: make(variant) for variant in variants}


def subjects_of(libraries: dict[str, Path]) -> dict[str, str]:
    """Digests by subject name: ``library.<variant>`` and ``tree.<grader>``."""
    subjects = {f"library.{name}": sha256_file(path) for name, path in libraries.items() if path.is_file()}
    return subjects | tree_subjects()


def tree_subjects() -> dict[str, str]:
    """Digest of each grader's sources, ``tree.<grader>``."""
    root = source_root()
    return {f"tree.{name}": sha256_tree(root, (root / tree).rglob("*.py")) for name, tree in GRADERS.items()}


def pack_subjects(manifest: SeatManifest) -> dict[str, str]:
    """Digests of the served pack. Raises InputError where it is missing or broken."""
    pack = read_pack(source_root() / manifest.pack)
    return {"pack.header": pack.header_digest(), "pack.payload": pack.payload_digest()}
