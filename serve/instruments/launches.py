"""Launches and kernel time of a decode step on every rank, from reduced profiler traces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from runner.errors import EvidenceError
from runner.model.engine_measure import GroupLaunches, LaunchesMeasure, RankLaunches
from runner.model.evidence import Evidence
from runner.model.plan import PlannedWindow
from runner.model.sample import Sample
from runner.model.trace import COLLECTIVE, KernelRow, RankTrace
from serve.instruments.base import sample
from serve.instruments.traces import layer_kernels, matches, read, steps_of, words

NAME = "launches"
VERSION = 1

COLLECTIVES, OTHER = "collective", "other"


def reduce(evidence: Sequence[Evidence], window: PlannedWindow) -> Sample:
    """Groups of kernels by the window's argument ``groups`` (name to patterns; the first name that fits counts).

    Faults beside those of the traces: a kernel of ``layer_kernels`` that did not run, launches that do not fit those
    which the witness counted, ranks with other step counts.
    """
    own = evidence[0]
    traces, faults = read(own)
    patterns = layer_kernels(window)
    groups = _groups(window)
    ranks = []
    for trace in traces:
        steps, missing = steps_of(own, trace, patterns)
        faults += missing
        ranks.append(_rank(trace, steps, groups))
    if len({rank.steps for rank in ranks}) > 1:
        told = ", ".join(f"{rank.steps} on rank {rank.rank}" for rank in ranks)
        faults.append(f"the ranks ran other numbers of steps: {told}")
    rows = max((rows for trace in traces for rows in trace.rows), default=0)
    return sample(evidence, LaunchesMeasure(rows=rows, ranks=tuple(ranks)), faults)


def _groups(window: PlannedWindow) -> dict[str, tuple[str, ...]]:
    named = window.arguments.get("groups")
    if not isinstance(named, dict):
        raise EvidenceError("groups must map names to kernel patterns", where=f"window {window.id}", found=repr(named))
    return {name: words(window, value, f"groups.{name}") for name, value in sorted(named.items())}


def _rank(trace: RankTrace, steps: int, groups: Mapping[str, Sequence[str]]) -> RankLaunches:
    rows: dict[str, list[KernelRow]] = {name: [] for name in (*groups, COLLECTIVES, OTHER)}
    for row in trace.kernels:
        rows[_group(row.name, groups)].append(row)
    return RankLaunches(
        rank=trace.rank,
        steps=steps,
        annotated=len(trace.steps),
        window_ns=trace.window_ns,
        busy_ns=trace.busy_ns,
        groups=tuple(
            GroupLaunches(
                name=name,
                launches=sum(row.launches for row in found),
                replayed=sum(row.replayed for row in found),
                time_ns=sum(row.time_ns for row in found),
                streams=tuple(sorted({stream for row in found for stream in row.streams})),
            )
            for name, found in rows.items()
        ),
    )


def _group(name: str, groups: Mapping[str, Sequence[str]]) -> str:
    fallback = COLLECTIVES if any(word in name.lower() for word in COLLECTIVE) else OTHER
    return next((group for group, patterns in groups.items() if matches(name, patterns)), fallback)
