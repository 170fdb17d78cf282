"""``rank-skew``: no rank works much longer on a decode step than the others; the slowest is named."""

from __future__ import annotations

from statistics import median

from runner.gates.base import GateInput, GateParameters, Limit
from runner.gates.common import Decision, Reading, by_limits, decide, figure, invalid, of_kind, verdict
from runner.model.engine_measure import RankSkewMeasure, RankSteps
from runner.model.verdict import Figure, Verdict

NAME = "rank-skew"
VERSION = 1


class Parameters(GateParameters):
    """How far ranks may differ, and how often that is looked at."""

    runs: int = 3
    """Fewest runs of an arm."""
    skew: Limit = "0.1"
    """How much longer the slowest rank's median step may be than the median of all ranks, as a share of that."""
    spread: Limit | None = None
    """Largest p95 over p50 of any rank's own work in a step."""


def judge(given: GateInput) -> Verdict:
    """FAIL naming run and rank. Work is kernel time without collectives, which absorb the waiting for a slow rank."""
    return verdict(NAME, VERSION, decide(Parameters, (RankSkewMeasure,), given, _decide))


def _decide(wanted: Parameters, readings: tuple[Reading, ...], given: GateInput) -> Decision:
    found = of_kind(readings, RankSkewMeasure)
    for arm in sorted({reading.window.arm for reading, _ in found}):
        runs = sum(reading.window.arm == arm for reading, _ in found)
        if runs < wanted.runs:
            return invalid(f"{runs} runs of the {arm}, at least {wanted.runs} are needed")
    failures: list[str] = []
    figures: list[Figure] = []
    slowest: list[int] = []
    for reading, measure in found:
        name = reading.window.id
        if not measure.ranks or any(not rank.steps or not rank.work_p50_ns for rank in measure.ranks):
            return invalid(f"{name}: a rank without a step")
        typical = median(rank.work_p50_ns for rank in measure.ranks)
        last = max(measure.ranks, key=lambda rank: rank.work_p50_ns)
        skew = (last.work_p50_ns - typical) / typical
        slowest.append(last.rank)
        figures += _figures(name, last, skew, wanted)
        if skew > float(wanted.skew):
            failures.append(f"{name}: rank {last.rank} takes {skew:.2%} longer than the median rank")
        for rank in measure.ranks:
            spread = rank.work_p95_ns / rank.work_p50_ns
            if wanted.spread is not None and spread > float(wanted.spread):
                failures.append(f"{name}: p95 of rank {rank.rank} is {spread:.3f} times its p50")
    told = ", ".join(map(str, sorted(set(slowest))))
    figures.append(Figure(name="slowest rank", value=told, unit="over all runs"))
    return by_limits(failures, tuple(figures), f"no rank stays behind; slowest is rank {told}")


def _figures(name: str, last: RankSteps, skew: float, wanted: Parameters) -> list[Figure]:
    return [
        figure(f"{name} slowest, rank {last.rank}, p50", last.work_p50_ns / 1e3, unit="µs a step"),
        figure(f"{name} slowest, rank {last.rank}, p95", last.work_p95_ns / 1e3, unit="µs a step"),
        figure(f"{name} skew", skew, limit=f"<= {wanted.skew}"),
        figure(f"{name} step p50", last.step_p50_ns / 1e3, unit="µs"),
        figure(f"{name} step p95", last.step_p95_ns / 1e3, unit="µs"),
    ]
