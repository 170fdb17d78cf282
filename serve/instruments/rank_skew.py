"""How long each rank itself takes for a decode step, from reduced profiler traces."""

from __future__ import annotations

from collections.abc import Sequence

from runner.model.engine_measure import RankSkewMeasure, RankSteps
from runner.model.evidence import Evidence
from runner.model.plan import PlannedWindow
from runner.model.sample import Sample
from runner.model.trace import RankTrace
from serve.instruments.base import sample
from serve.instruments.streams import quantile
from serve.instruments.traces import layer_kernels, read, steps_of

NAME = "rank-skew"
VERSION = 1


def reduce(evidence: Sequence[Evidence], window: PlannedWindow) -> Sample:
    """p50 and p95 (nearest rank) over the steps of the trace's decode window.

    A step is what lies between two annotations on the device, so their number must be that of the kernel counts: where
    it is not, no single step can be timed, which is a fault.
    """
    own = evidence[0]
    traces, faults = read(own)
    patterns = layer_kernels(window)
    for trace in traces:
        steps, missing = steps_of(own, trace, patterns)
        faults += missing
        if steps != len(trace.steps):
            faults.append(f"rank {trace.rank}: {steps} steps by kernel counts, {len(trace.steps)} are annotated")
    return sample(evidence, RankSkewMeasure(ranks=tuple(_steps(trace) for trace in traces)), faults)


def _steps(trace: RankTrace) -> RankSteps:
    work = sorted(step.work_ns for step in trace.steps)
    starts = [step.at_ns for step in trace.steps]
    ends = [*starts[1:], starts[0] + trace.window_ns] if starts else []
    lengths = sorted(end - start for start, end in zip(starts, ends, strict=True))
    return RankSteps(
        rank=trace.rank,
        steps=len(work),
        work_p50_ns=quantile(work, 50),
        work_p95_ns=quantile(work, 95),
        collective_p50_ns=quantile(sorted(step.collective_ns for step in trace.steps), 50),
        step_p50_ns=quantile(lengths, 50),
        step_p95_ns=quantile(lengths, 95),
    )
