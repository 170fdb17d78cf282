"""Gates that read profiler traces: the seat has a profiler, and the order says which kernels run once a layer."""

from __future__ import annotations

from collections.abc import Iterator

from runner.checks.fault import Fault
from runner.model.order import GateOrder, RunnableOrder
from runner.model.order.judgement import GateRequest
from runner.model.seat import SeatManifest
from runner.plan_traces import LAYER_KERNELS, ON_TRACES, has_profiler


def traced(
    path: tuple[str | int, ...], order: RunnableOrder, request: GateRequest, manifest: SeatManifest
) -> Iterator[Fault]:
    """Faults of one gate."""
    if request.name not in ON_TRACES:
        return
    if not has_profiler(manifest) and not (request.measure and request.measure.substitute):
        message = f"seat {manifest.name} has no profiler (a word of command with {{traces}}): gate {request.name}"
        yield Fault((*path, "name"), f"{message} could not look")
    kernels = request.windows.get(LAYER_KERNELS)
    arms = ("incumbent",) if isinstance(order, GateOrder) else ("incumbent", "candidate")
    for arm in arms:
        patterns = kernels.get(arm) if isinstance(kernels, dict) else None
        if not isinstance(patterns, list) or not patterns:
            message = f"{request.name}: no kernel of the {arm} is named that runs once a layer: steps cannot be counted"
            yield Fault((*path, "windows", LAYER_KERNELS), message)
