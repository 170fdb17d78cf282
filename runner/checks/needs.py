"""What gates need of their seat and order: a profiler and named kernels, ranks, predictions, graphs, eyes, drafts."""

from __future__ import annotations

import json
from collections.abc import Iterator

from runner.checks.fault import Fault
from runner.checks.memory import unpredictable
from runner.model.order import GateOrder, RunnableOrder
from runner.model.order.judgement import GateRequest
from runner.model.seat import SeatManifest
from runner.paths import source_root
from runner.plan_layout import SPECULATIVE_CONFIG
from runner.plan_speculation import SPECULATION
from runner.plan_traces import LAYER_KERNELS, ON_TRACES, has_profiler

Path = tuple[str | int, ...]
_BLIND = {
    "memory": "passes where nothing was predicted",
    "rank-skew": "compares the slowest rank with itself too: one of two may lag twice as far as the limit",
}
"""What the first version of a gate does not see, and the second does."""


def needs(path: Path, order: RunnableOrder, request: GateRequest, manifest: SeatManifest) -> Iterator[Fault]:
    """Faults of one gate."""
    if request.name in ON_TRACES:
        yield from _traced(path, order, request, manifest)
    if request.version == 1 and request.name in _BLIND:
        message = f"{request.name}: version 1 {_BLIND[request.name]}: ask for version 2"
        yield Fault((*path, "version"), message)
    if request.name == "memory":
        yield from unpredictable(path, order, request, manifest)
    if request.name == "rank-skew" and manifest.tensor_parallel < 2:
        yield Fault((*path, "name"), f"seat {manifest.name} has one rank: there is none that it could be compared with")
    if request.name == "eager-gap" and manifest.arguments.get("enforce_eager"):
        yield Fault((*path, "name"), f"seat {manifest.name} has no graphs: there is no gap to measure")
    if request.name == "vision" and not _sees(manifest):
        yield Fault((*path, "name"), f"seat {manifest.name} serves {manifest.pack}, which reads text alone")
    if request.name == "acceptance":
        yield from _speculating(path, order, manifest)


def _sees(manifest: SeatManifest) -> bool:
    """Whether the pack may take images: by its configuration, or where it is on another machine nobody can say no."""
    config = source_root() / manifest.pack / "config.json"
    if config.is_file():
        return "vision_config" in json.loads(config.read_bytes())
    return manifest.adapter == "docker"


def _traced(path: Path, order: RunnableOrder, request: GateRequest, manifest: SeatManifest) -> Iterator[Fault]:
    if not has_profiler(manifest) and not (request.measure and request.measure.substitute):
        message = f"seat {manifest.name} has no profiler (a word of command with {{traces}}): gate {request.name}"
        yield Fault((*path, "name"), f"{message} could not look")
    kernels = request.windows.get(LAYER_KERNELS)
    for arm in ("incumbent",) if isinstance(order, GateOrder) else ("incumbent", "candidate"):
        patterns = kernels.get(arm) if isinstance(kernels, dict) else None
        if not isinstance(patterns, list) or not patterns:
            message = f"{request.name}: no kernel of the {arm} is named that runs once a layer: steps cannot be counted"
            yield Fault((*path, "windows", LAYER_KERNELS), message)


def _speculating(path: Path, order: RunnableOrder, manifest: SeatManifest) -> Iterator[Fault]:
    if not manifest.arguments.get(SPECULATIVE_CONFIG) and not any(one.windows.get(SPECULATION) for one in order.gates):
        message = f"seat {manifest.name} does not speculate and no gate's windows say how: nothing could be accepted"
        yield Fault((*path, "windows", SPECULATION), message)
