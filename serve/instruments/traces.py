"""Reduced traces of a window, checked: every rank has one, nothing was captured or prewarmed meanwhile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fnmatch import fnmatchcase
from math import gcd

from pydantic import JsonValue, ValidationError

from runner.errors import EvidenceError
from runner.model.evidence import Evidence
from runner.model.plan import PlannedWindow
from runner.model.trace import RankTrace
from serve.instruments.answers import fact
from serve.instruments.engagement import differences

TRACES = "traces"
"""Fact of the evidence: one :class:`RankTrace` for each trace the profiler wrote."""
LAYER_KERNELS = "layer_kernels"
"""Window argument, by arm: patterns of the kernels that run once for each of their layers in every step."""


def read(evidence: Evidence) -> tuple[list[RankTrace], list[str]]:
    """The traces by rank, and what keeps them from counting. Raises EvidenceError for anything that is no trace.

    Faults: a rank of the engine that left no trace, two of one rank, a graph that was captured or a prewarm that ran
    inside the window: both put launches into the trace that no decode step makes.
    """
    found = fact(evidence, TRACES)
    try:
        traces = [RankTrace.model_validate_json(str(one)) for one in (found if isinstance(found, list) else [])]
    except ValidationError as error:
        raise EvidenceError(
            "a reduced trace cannot be read",
            where=f"evidence of window {evidence.window}, facts.{TRACES}",
            found=error.errors()[0]["msg"],
            next_step="measure the window again",
        ) from error
    ranks = [trace.rank for trace in traces]
    expected = {counters.rank for counters in evidence.counters_after} | {
        rank for trace in traces for rank in range(trace.ranks)
    }
    faults = [f"rank {rank} left no trace" for rank in sorted(expected - set(ranks))]
    faults += [f"rank {rank} left {ranks.count(rank)} traces" for rank in sorted(set(ranks)) if ranks.count(rank) > 1]
    for trace in traces:
        if trace.captures:
            faults.append(f"rank {trace.rank}: {trace.captures} graphs were captured inside the window")
    if not traces:
        faults.append("no rank left a trace")
    warm = {counters.rank: counters.prewarm for counters in evidence.counters_before}
    faults += [
        f"rank {counters.rank}: the engine warmed up inside the window"
        for counters in evidence.counters_after
        if counters.prewarm != warm.get(counters.rank, counters.prewarm)
    ]
    return sorted(traces, key=lambda trace: trace.rank), faults


def steps_of(evidence: Evidence, trace: RankTrace, patterns: Sequence[str]) -> tuple[int, list[str]]:
    """Steps inside the trace's decode window, and what is wrong with them.

    The greatest common divisor of the launches of every kernel that runs once a layer: 1,032 = 43 × 24 and 72 = 3 × 24
    make 24 steps; annotation spans decide nothing (FL-51). Where all of them share a factor, the witness decides: it
    counted every layer once a step, over a window that is a few steps longer than the trace's. What the trace shows and
    the witness did not count did not run where the seat counts.
    """
    launches = {row.name: row.launches for row in trace.kernels if matches(row.name, patterns)}
    missing = [pattern for pattern in patterns if not any(fnmatchcase(name, pattern) for name in launches)]
    if missing:
        return 0, [
            f"rank {trace.rank}: no kernel {pattern} ran in the decode steps of the trace" for pattern in missing
        ]
    common, witness = gcd(*launches.values()), _fewest(evidence, trace.rank)
    steps = max((number for number in range(1, witness + 1) if common % number == 0), default=0)
    if steps * 3 < witness * 2 or not steps:
        told = f"launches in the trace have the divisor {common}, the witness counted {witness} of a layer"
        return steps, [f"rank {trace.rank}: {told}"]
    return steps, []


def _fewest(evidence: Evidence, rank: int) -> int:
    """Fewest launches of any layer of routed experts on the rank in the whole window, by the witness."""
    layers: Counter[str] = Counter()
    for row in (row for one in differences(evidence)[0] if one.rank == rank for row in one.witness):
        if row.op == "routed_experts":
            layers[row.layer] += row.launches
    return min(layers.values(), default=0)


def matches(name: str, patterns: Sequence[str]) -> bool:
    """Whether a kernel's name fits one of the patterns (``*`` and ``?``, case counts)."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def layer_kernels(window: PlannedWindow) -> tuple[str, ...]:
    """The patterns of the window's own arm, or those that hold for every arm. Raises EvidenceError for none."""
    named = window.arguments.get(LAYER_KERNELS)
    own = named.get(window.arm) if isinstance(named, dict) else named
    return words(window, own, LAYER_KERNELS)


def words(window: PlannedWindow, value: JsonValue, where: str) -> tuple[str, ...]:
    """A list of patterns of the window's arguments. Raises EvidenceError for anything else."""
    if not isinstance(value, list) or not value or not all(isinstance(one, str) for one in value):
        raise EvidenceError(
            "a window argument is no list of kernel patterns",
            where=f"window {window.id}, {where}",
            expected="a list of text, not empty",
            found=repr(value),
        )
    return tuple(str(one) for one in value)
