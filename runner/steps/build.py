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
from runner.craft.taken import laid_over, refusable, taken, toy
from runner.craft.taken import subjects as candidate_subjects
from runner.digest import sha256_bytes, sha256_file
from runner.graders import native_subjects, tree_subjects
from runner.model.base import ROUTED, Operator
from runner.model.order import KernelOrder, SurveyOrder, WorkOrder, files_of
from runner.model.seat import SeatManifest
from runner.plan_layout import KNOCK_OUTS, desk_builds
from runner.plan_windows import ON_THE_DESK
from runner.steps.seats import pack_of
from runner.steps.state import Run
from serve.adapters.fake import toy_record
from serve.adapters.fake_model import BEHAVIOURS
from serve.adapters.process import installed_engine
from serve.witness.build import witness_library

_WITHOUT_PACK = frozenset({"fake", "desk", "attach"})

CPU_SOURCES = "kernels/cpu/"

WITNESS = "witness"
"""The native witness among a run's libraries."""


def build(run: Run) -> Run:
    """Build (or find in the cache) every library the plan may load. Raises InputError with the compiler's words.

    A frozen candidate that does not compile is refused for good: a CandidateError, and the next brief says why.
    """
    if isinstance(run.order.order, SurveyOrder):
        return replace(run, built=replace(run.built, subjects=subjects_of({})))
    manifest = run.manifest
    with refusable(run.folder, run.journal):
        frozen = candidate_libraries(run, manifest)
    others = tuple(name for name in wanted(run.order.order, manifest) if name not in frozen)
    built = frozen | build_libraries(others, manifest, brought(run.order.order), operator_of(run.order.order))
    built |= witness_of(manifest)
    subjects = subjects_of(built) | engine_subjects(manifest) | brief_subject(run) | candidate_subjects(run.folder)
    subjects |= pack_subjects(manifest)
    subjects |= {} if frozen else native_subjects()  # a frozen candidate brings sources of its own, and their digest
    return replace(run, built=replace(run.built, libraries=built, subjects=subjects))


def wanted(order: WorkOrder, manifest: SeatManifest) -> tuple[str, ...]:
    """Variants whose libraries this order needs on this seat. On a GPU the incumbent's is the host's own."""
    if not isinstance(order, KernelOrder):
        return standing_variants(manifest)
    candidate = order.candidate
    if manifest.adapter == "desk":
        return desk_builds(candidate.variant)
    marked = (f"{candidate.variant}-watermark",) if any(gate.name == "watermark" for gate in order.gates) else ()
    if not manifest.gpu:
        return (candidate.incumbent, candidate.variant, *marked, *KNOCK_OUTS)
    desk = desk_builds(candidate.variant) if any(gate.name in ON_THE_DESK for gate in order.gates) else ()
    return tuple(dict.fromkeys((candidate.variant, *marked, *KNOCK_OUTS, *desk)))


def standing_variants(manifest: SeatManifest) -> tuple[str, ...]:
    """Variants whose libraries serve the seat as it stands."""
    return () if manifest.gpu else ("incumbent",)


def brought(order: WorkOrder) -> str:
    """Source of the order's candidate below ``kernels/cpu``; empty where it names none there."""
    sources = order.candidate.sources if isinstance(order, KernelOrder) else ()
    return next((name.removeprefix(CPU_SOURCES) for name in sources if name.startswith(CPU_SOURCES)), "")


def operator_of(order: WorkOrder) -> Operator:
    """What the order's candidate computes."""
    return order.candidate.operator if isinstance(order, KernelOrder) else ROUTED


def build_libraries(
    variants: tuple[str, ...], manifest: SeatManifest, source: str = "", operator: Operator = ROUTED
) -> dict[str, Path]:
    """Library of each variant; the fake seat brings its variants itself and names them.

    ``source`` is that of a variant which only the order knows. A knock-out has the interface of the ``operator`` that
    it stands for.
    """
    if manifest.adapter == "fake":
        return {variant: Path(variant) for variant in variants}
    if manifest.gpu:
        kind = "" if operator == ROUTED else "dense-"
        return {name: build_gpu_library(f"{kind}{name}" if name in KNOCK_OUTS else name) for name in variants}
    if manifest.adapter == "attach":
        return {}  # what stands loads nothing of ours
    return {variant: build_library(variant, source=source) for variant in variants}


def witness_of(manifest: SeatManifest) -> dict[str, Path]:
    """The native witness of an engine on a GPU, built here: it is sealed and travels with the libraries."""
    serving = manifest.gpu and manifest.adapter != "desk"
    return {WITNESS: witness_library(gpu=True)} if serving else {}


def candidate_libraries(run: Run, manifest: SeatManifest) -> dict[str, Path]:
    """The candidate and its watermark from the files that were frozen; none where the checkout's own are judged."""
    order = run.order.order
    if not isinstance(order, KernelOrder) or taken(run.folder) is None:
        return {}
    variant = order.candidate.variant
    if manifest.adapter == "fake":
        return {variant: Path(toy(run.folder, order.candidate.sources, BEHAVIOURS) or variant)}
    ours = {name for name in wanted(order, manifest) if name == variant or name.startswith(f"{variant}-")}
    if manifest.gpu:
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
    if manifest.gpu:  # not installed here; the native witness is among the libraries
        return {"engine.record": manifest.distribution_record} if manifest.distribution_record else {}
    if manifest.container is not None:
        witness = {} if manifest.gpu else {"witness.library": sha256_file(witness_library())}
        return {"engine.image": manifest.container.digest, **witness}
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
    pack = read_pack(pack_of(manifest))
    return {"pack.header": pack.header_digest(), "pack.payload": pack.payload_digest()}
