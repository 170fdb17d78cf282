"""``launches``: what a decode step launches on every rank, by groups of kernels, and how long they run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from runner.gates.base import GateInput, GateParameters, Limit
from runner.gates.common import Decision, Reading, by_limits, decide, figure, invalid, of_kind, verdict
from runner.model.engine_measure import GroupLaunches, LaunchesMeasure, RankLaunches
from runner.model.verdict import Figure, Verdict

NAME = "launches"
VERSION = 1

_ALL = "all"
_MS = 1e6


class Parameters(GateParameters):
    """Limits by the name of a group; ``all`` is every kernel. Each holds on every rank."""

    exactly: dict[str, Limit] = {}
    """Launches a step, neither more nor fewer: of a fused kernel that never ran there are 0 (FL-04)."""
    most: dict[str, Limit] = {}
    """Most launches a step."""
    most_ms: dict[str, Limit] = {}
    """Most kernel time a step, in milliseconds."""
    most_share: dict[str, Limit] = {}
    """Largest share of all kernel time."""
    faster: dict[str, Limit] = {}
    """Least ratio of kernel time a step, incumbent over candidate, slowest rank against slowest rank."""
    graphs: tuple[str, ...] = ()
    """Groups of which every launch has to be a graph's replay."""
    one_stream: tuple[str, ...] = ()
    """Groups that together may run on one stream only: kernels that share a lock or scratch (FL-23)."""


@dataclass(frozen=True)
class _Group:
    """One group of one rank, per step."""

    launches: float
    ms: float
    share: float
    replayed: bool
    streams: tuple[int, ...]


def judge(given: GateInput) -> Verdict:
    """FAIL naming window, rank and group; judged is the candidate, or the incumbent where there is no candidate."""
    return verdict(NAME, VERSION, decide(Parameters, (LaunchesMeasure,), given, _decide))


def _decide(wanted: Parameters, readings: tuple[Reading, ...], given: GateInput) -> Decision:
    found = of_kind(readings, LaunchesMeasure)
    empty = [reading.window.id for reading, measure in found if not measure.ranks or _stepless(measure)]
    if empty:
        return invalid(*(f"{name}: no step was counted" for name in empty))
    named = {name for limits in _named(wanted) for name in limits}
    known = {group.name for _, measure in found for rank in measure.ranks for group in rank.groups} | {_ALL}
    if unknown := sorted(named - known):
        return invalid(f"no kernels are grouped as {', '.join(unknown)}; groups are {', '.join(sorted(known))}")
    candidates = [(reading, measure) for reading, measure in found if reading.window.arm == "candidate"]
    incumbents = [measure for reading, measure in found if reading.window.arm == "incumbent"]
    if wanted.faster and not (candidates and incumbents):
        return invalid("a ratio of times needs both arms")
    failures: list[str] = []
    for reading, measure in candidates or found:
        for rank in measure.ranks:
            groups = {name: _group(rank, name) for name in known}
            failures += [f"{reading.window.id}, rank {rank.rank}: {text}" for text in _broken(wanted, groups)]
        for name, least in wanted.faster.items():
            ratio = _slowest(incumbents, name) / max(_slowest([measure], name), 1e-9)
            if ratio < float(least):
                failures.append(f"{reading.window.id}: {name} is {ratio:.4g} times faster, at least {least}")
    return by_limits(failures, tuple(_figures(found, wanted)), "every rank launches what it should")


def _named(wanted: Parameters) -> Iterator[Mapping[str, object] | tuple[str, ...]]:
    yield from (wanted.exactly, wanted.most, wanted.most_ms, wanted.most_share, wanted.faster)
    yield from (wanted.graphs, wanted.one_stream)


def _stepless(measure: LaunchesMeasure) -> bool:
    return any(rank.steps < 1 for rank in measure.ranks)


def _group(rank: RankLaunches, name: str) -> _Group:
    own = [group for group in rank.groups if name in (_ALL, group.name)]
    whole = max(sum(group.time_ns for group in rank.groups), 1)
    launches, time = sum(group.launches for group in own), sum(group.time_ns for group in own)
    return _Group(
        launches=launches / rank.steps,
        ms=time / rank.steps / _MS,
        share=time / whole,
        replayed=sum(group.replayed for group in own) == launches,
        streams=_streams(own),
    )


def _streams(groups: list[GroupLaunches]) -> tuple[int, ...]:
    return tuple(sorted({stream for group in groups for stream in group.streams}))


def _broken(wanted: Parameters, groups: dict[str, _Group]) -> Iterator[str]:
    for name, limit in wanted.exactly.items():
        if groups[name].launches != float(limit):
            yield f"{name} launches {groups[name].launches:.6g} times a step, planned was {limit}"
    over: tuple[tuple[str, Mapping[str, str], Callable[[_Group], float]], ...] = (
        ("launches a step", wanted.most, lambda group: group.launches),
        ("ms a step", wanted.most_ms, lambda group: group.ms),
        ("of the kernel time", wanted.most_share, lambda group: group.share),
    )
    for unit, limits, value in over:
        for name, limit in limits.items():
            if value(groups[name]) > float(limit):
                yield f"{name}: {value(groups[name]):.6g} {unit}, at most {limit}"
    for name in wanted.graphs:
        if not groups[name].replayed:
            yield f"{name} was launched outside a graph"
    together = tuple(sorted({stream for name in wanted.one_stream for stream in groups[name].streams}))
    if len(together) > 1:
        yield f"{', '.join(wanted.one_stream)} ran on streams {', '.join(map(str, together))}"


def _slowest(measures: list[LaunchesMeasure], name: str) -> float:
    return max(_group(rank, name).ms for measure in measures for rank in measure.ranks)


def _figures(found: list[tuple[Reading, LaunchesMeasure]], wanted: Parameters) -> Iterator[Figure]:
    """Of each window and group the figures of the slowest rank."""
    for reading, measure in found:
        name = reading.window.id
        yield figure(f"{name} steps", measure.ranks[0].steps)
        yield figure(f"{name} device busy", max(rank.busy_ns / max(rank.window_ns, 1) for rank in measure.ranks))
        for group in (*(group.name for group in measure.ranks[0].groups), _ALL):
            rank = max(measure.ranks, key=lambda rank: _group(rank, group).ms)
            told = _group(rank, group)
            exact, most = wanted.exactly.get(group), wanted.most.get(group)
            limit = f"== {exact}" if exact is not None else f"<= {most}" if most is not None else ""
            yield figure(f"{name} {group} launches", told.launches, unit="a step", limit=limit)
            yield figure(f"{name} {group} time, rank {rank.rank}", told.ms, unit="ms a step")
            yield figure(f"{name} {group} share, rank {rank.rank}", told.share)
