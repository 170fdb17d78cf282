"""``rank-skew`` from version 2 on: the slowest rank is compared with the others, and never with itself."""

from __future__ import annotations

from statistics import median

from runner.gates import rank_skew
from runner.gates.base import GateInput, Limit
from runner.gates.common import Decision, Reading, by_limits, decide, figure, invalid, of_kind, verdict
from runner.model.engine_measure import RankSkewMeasure
from runner.model.verdict import Figure, Status, Verdict

NAME = "rank-skew"
VERSION = 2


class Parameters(rank_skew.Parameters):
    """As in version 1, but for what the slowest rank is compared with."""

    skew: Limit = "0.1"
    """How much longer the slowest rank's median step may be than the median of the other ranks, as a share of that."""


def judge(given: GateInput) -> Verdict:
    """FAIL naming run and rank; INVALID where a rank is alone: there is nothing that it could lag behind."""
    return verdict(
        NAME, VERSION, decide(Parameters, (RankSkewMeasure,), given, lambda *all_of: _decide(given, *all_of))
    )


def _decide(whole: GateInput, wanted: Parameters, readings: tuple[Reading, ...], given: GateInput) -> Decision:
    first = rank_skew.judge(whole)
    if first.status is Status.INVALID:
        return Decision(first.status, first.reasons, first.figures)
    found = of_kind(readings, RankSkewMeasure)
    if alone := [reading.window.id for reading, measure in found if len(measure.ranks) < 2]:
        return invalid(f"{alone[0]}: one rank, and none that it could be compared with")
    failures: list[str] = []
    figures: list[Figure] = []
    slowest: set[int] = set()
    for reading, measure in found:
        name = reading.window.id
        *others, last = sorted(measure.ranks, key=lambda rank: rank.work_p50_ns)
        slowest.add(last.rank)
        typical = median(rank.work_p50_ns for rank in others)
        skew = (last.work_p50_ns - typical) / typical
        figures += [
            figure(f"{name} slowest, rank {last.rank}, p50", last.work_p50_ns / 1e3, unit="µs a step"),
            figure(f"{name} slowest, rank {last.rank}, p95", last.work_p95_ns / 1e3, unit="µs a step"),
            figure(f"{name} skew", skew, limit=f"<= {wanted.skew}"),
            figure(f"{name} step p50", last.step_p50_ns / 1e3, unit="µs"),
            figure(f"{name} step p95", last.step_p95_ns / 1e3, unit="µs"),
        ]
        if skew > float(wanted.skew):
            failures.append(f"{name}: rank {last.rank} takes {skew:.2%} longer than the median of the others")
        for rank in measure.ranks:
            spread = rank.work_p95_ns / rank.work_p50_ns
            if wanted.spread is not None and spread > float(wanted.spread):
                failures.append(f"{name}: p95 of rank {rank.rank} is {spread:.3f} times its p50")
    told = ", ".join(map(str, sorted(slowest)))
    figures.append(Figure(name="slowest rank", value=told, unit="over all runs"))
    return by_limits(failures, tuple(figures), f"no rank stays behind; slowest is rank {told}")
