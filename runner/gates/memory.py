"""``memory``: every rank holds what was predicted before the boot, and a candidate no more than it may."""

from __future__ import annotations

from collections.abc import Iterator

from runner.gates.base import GateInput, GateParameters, Limit
from runner.gates.common import Decision, Reading, by_limits, decide, figure, invalid, of_kind, verdict
from runner.model.answer_measure import MemoryMeasure, RankMemory
from runner.model.verdict import Figure, Verdict

NAME = "memory"
VERSION = 1


class Parameters(GateParameters):
    """Limits on every rank; names are those of the readback, for example ``weights_bytes``."""

    within: Limit = "0.02"
    """Largest distance of live from predicted, as a share of what was predicted."""
    predicted: tuple[str, ...] = ("weights_bytes", "kv_cache_tokens")
    """Names that have to be predicted and read back."""
    most: dict[str, Limit] = {}
    """Most of one name, live: scratch is for each device, not for each layer (FL-31)."""
    least: dict[str, Limit] = {}
    """Least of one name, live: KV tokens that the seat has to keep (FL-33)."""


def judge(given: GateInput) -> Verdict:
    """FAIL naming window, rank and what it is that was not as predicted."""
    return verdict(NAME, VERSION, decide(Parameters, (MemoryMeasure,), given, _decide))


def _decide(wanted: Parameters, readings: tuple[Reading, ...], given: GateInput) -> Decision:
    failures: list[str] = []
    figures: list[Figure] = []
    for reading, measure in of_kind(readings, MemoryMeasure):
        name = reading.window.id
        needed = {*wanted.predicted, *wanted.most, *wanted.least}
        unknown = {one for rank in measure.ranks for one in (needed | rank.predicted.keys()) - rank.live.keys()}
        unknown |= {one for rank in measure.ranks for one in measure.ranks[0].predicted.keys() - rank.predicted.keys()}
        if unknown or not measure.ranks:
            return invalid(f"{name}: nothing is known of {', '.join(sorted(unknown)) or 'any rank'}")
        for rank in measure.ranks:
            failures += [f"{name}, rank {rank.rank}: {text}" for text in _broken(wanted, rank)]
        figures += _figures(name, measure, wanted)
    return by_limits(failures, tuple(figures), "every rank holds what was predicted")


def _broken(wanted: Parameters, rank: RankMemory) -> Iterator[str]:
    for name, foretold in rank.predicted.items():
        if abs(rank.live[name] - foretold) > float(wanted.within) * foretold:
            yield f"{name} is {rank.live[name]}, predicted was {foretold}"
    for name, limit in wanted.most.items():
        if rank.live[name] > float(limit):
            yield f"{name} is {rank.live[name]}, at most {limit}"
    for name, limit in wanted.least.items():
        if rank.live[name] < float(limit):
            yield f"{name} is {rank.live[name]}, at least {limit}"


def _figures(window: str, measure: MemoryMeasure, wanted: Parameters) -> Iterator[Figure]:
    """Of each name the rank that is farthest from its prediction."""
    for name in measure.ranks[0].predicted:
        rank = max(measure.ranks, key=lambda one: abs(one.live[name] - one.predicted[name]))
        off = rank.live[name] / max(rank.predicted[name], 1) - 1
        yield figure(f"{window} {name}, rank {rank.rank}", rank.live[name])
        yield figure(f"{window} {name} off", abs(off), limit=f"<= {wanted.within}")
