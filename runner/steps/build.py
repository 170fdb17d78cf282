"""Native libraries of the candidate, its watermark and the knock-outs, and the digests of what judges and is judged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from carve_kernels.build import build as build_library
from carve_kernels.cuda.build import build as build_gpu_library
from carve_kernels.cuda.registry import sources_folder as gpu_sources_folder
from carve_kernels.registry import sources_folder

from recipe.pack import read_pack
from runner.brief.render import brief_of
from runner.craft.candidate import laid_over, refusable, taken, toy
from runner.craft.candidate import subjects as candidate_subjects
from runner.digest import sha256_bytes, sha256_file
from runner.graders import tree_subjects
from runner.model.order import KernelOrder, SurveyOrder, WorkOrder, files_of
from runner.model.seat import SeatManifest
from runner.paths import source_root
from runner.plan_layout import KNOCK_OUTS, desk_builds
from runner.steps.state import Run
from serve.adapters.fake import toy_record
from serve.adapters.process import installed_engine
from serve.witness.build import witness_library

_WITHOUT_PACK = frozenset({"fake", "desk", "attach"})

CPU_SOURCES = "kernels/cpu/"


def build(run: Run) -> Run:
    """Build (or find in the cache) every library the plan may load. Raises InputError with the compiler's words.

    A frozen candidate that does not compile is refused for good: a CandidateError, and the next brief says why.
    """
    if isinstance(run.order.order, SurveyOrder):
        return replace(run, built=replace(run.built, subjects=subjects_of({})))
    adapter = run.manifest.adapter
    with refusable(run.folder, run.journal):
        frozen = candidate_libraries(run, adapter)
    others = tuple(name for name in wanted(run.order.order, adapter) if name not in frozen)
    built = frozen | build_libraries(others, adapter, brought(run.order.order))
    subjects = subjects_of(built) | engine_subjects(run.manifest) | brief_subject(run) | candidate_subjects(run.folder)
    subjects |= pack_subjects(run.manifest)
    return replace(run, built=replace(run.built, libraries=built, subjects=subjects))


def wanted(order: WorkOrder, adapter: str) -> tuple[str, ...]:
    """Variants whose libraries this order needs on a seat of this adapter."""
    if not isinstance(order, KernelOrder):
        return ("incumbent",)
    candidate = order.candidate
    if adapter == "desk":  # its incumbents are libraries of the desk's own host
        return desk_builds(candidate.variant)
    marked = (f"{candidate.variant}-watermark",) if any(gate.name == "watermark" for gate in order.gates) else ()
    return (candidate.incumbent, candidate.variant, *marked, *KNOCK_OUTS)


def brought(order: WorkOrder) -> str:
    """Source of the order's candidate below ``kernels/cpu``; empty where it names none there."""
    sources = order.candidate.sources if isinstance(order, KernelOrder) else ()
    return next((name.removeprefix(CPU_SOURCES) for name in sources if name.startswith(CPU_SOURCES)), "")


def build_libraries(variants: tuple[str, ...], adapter: str, source: str = "") -> dict[str, Path]:
    """Library of each variant; the fake seat brings its variants itself and names them, a desk seat is a GPU's.

    ``source`` is that of a variant which only the order knows.
    """
    if adapter == "fake":
        return {variant: Path(variant) for variant in variants}
    if adapter == "desk":
        return {variant: build_gpu_library(variant) for variant in variants}
    if adapter == "attach":
        return {}  # what stands loads nothing of ours
    return {variant: build_library(variant, source=source) for variant in variants}


def candidate_libraries(run: Run, adapter: str) -> dict[str, Path]:
    """The candidate and its watermark from the files that were frozen; none where the checkout's own are judged."""
    order = run.order.order
    if not isinstance(order, KernelOrder) or taken(run.folder) is None:
        return {}
    variant = order.candidate.variant
    if adapter == "fake":
        return {variant: Path(toy(run.folder, order.candidate.sources) or variant)}
    ours = {name for name in wanted(order, adapter) if name == variant or name.startswith(f"{variant}-")}
    if adapter == "desk":
        sources = laid_over(run.folder, gpu_sources_folder())
        return {name: build_gpu_library(name, folder=sources) for name in ours}
    sources = laid_over(run.folder, sources_folder())
    return {name: build_library(name, sources, brought(order)) for name in ours}


def subjects_of(libraries: dict[str, Path]) -> dict[str, str]:
    """Digests by subject name: ``library.<variant>`` and ``tree.<grader>``."""
    subjects = {f"library.{name}": sha256_file(path) for name, path in libraries.items() if path.is_file()}
    return subjects | tree_subjects()


def engine_subjects(manifest: SeatManifest) -> dict[str, str]:
    """Digests of the engine that serves and of the native witness in it. Raises SeatError where it is not installed."""
    if manifest.adapter == "fake":
        return {"engine.record": toy_record()}
    if manifest.adapter in ("desk", "attach"):
        return {}  # kernels alone, or an engine that nobody here installed
    if manifest.container is not None:
        return {"engine.image": manifest.container.digest, "witness.library": sha256_file(witness_library())}
    return {
        "engine.record": installed_engine(manifest.distribution)["record"],
        "witness.library": sha256_file(witness_library()),
    }


def brief_subject(run: Run) -> dict[str, str]:
    """Digest of the brief that the order's craftsperson was given; an order for nobody has none."""
    if not isinstance(run.order.order, KernelOrder) and not files_of(run.order.order):
        return {}
    return {"brief": sha256_bytes(brief_of(run.folder / "order.yaml", run.manifest.name).encode())}


def pack_subjects(manifest: SeatManifest) -> dict[str, str]:
    """Digests of the served pack, where the seat has one here. Raises InputError where it is missing or broken."""
    if manifest.adapter in _WITHOUT_PACK:
        return {}
    pack = read_pack(source_root() / manifest.pack)
    return {"pack.header": pack.header_digest(), "pack.payload": pack.payload_digest()}
