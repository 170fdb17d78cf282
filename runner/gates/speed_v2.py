"""``speed`` from version 2 on: several declared primary metrics, read from the same quads.

What is said of each metric, FASTER, SLOWER or SAME, holds for all of them together with the family's error: each is
decided at :data:`runner.stats.FAMILY_ERROR` over their number (Bonferroni), which asks for more pairs. PASS says it of
every declared metric, so that none is picked after the run.
"""

from __future__ import annotations

from typing import Literal

from runner.gates import speed
from runner.gates.base import GateInput
from runner.gates.common import Decision, invalid, parse, verdict
from runner.model.verdict import Figure, Status, Verdict
from runner.stats import FAMILY_ERROR, fewest

NAME = "speed"
VERSION = 2

Metric = Literal["decode-rate", "aggregate-rate"]
_COVERAGE = "coverage"


class Parameters(speed.Parameters):
    """As in version 1, which decides about each metric."""

    secondary: tuple[Metric, ...] = ()
    """Metrics that decide beside ``metric``, by the same margin and the same pairs."""


def judge(given: GateInput) -> Verdict:
    """PASS where every metric passes and the pairs carry so many; FAIL where one fails."""
    wanted = parse(Parameters, given)
    decision = wanted if isinstance(wanted, Decision) else _decide(wanted, given)
    return verdict(NAME, VERSION, decision)


def _decide(wanted: Parameters, given: GateInput) -> Decision:
    metrics = (wanted.metric, *wanted.secondary)
    if len(set(metrics)) < len(metrics):
        return invalid(f"a metric is declared twice: {', '.join(metrics)}")
    common = wanted.model_dump(mode="json", exclude={"metric", "secondary"})
    parts = [speed.judge(given.model_copy(update={"parameters": common | {"metric": each}})) for each in metrics]
    figures = parts[0].figures
    for metric, part in zip(metrics[1:], parts[1:], strict=True):
        figures += tuple(one.model_copy(update={"name": f"{metric}: {one.name}"}) for one in part.figures)
    for status in (Status.INVALID, Status.NOT_RUN):
        if found := [reason for part in parts if part.status is status for reason in part.reasons]:
            return Decision(status, tuple(dict.fromkeys(found)), figures)
    reasons = [f"{metric}: {text}" for metric, part in zip(metrics, parts, strict=True) for text in part.reasons]
    for status in (Status.FAIL, Status.UNRESOLVED):
        if any(part.status is status for part in parts):
            return Decision(status, tuple(reasons), figures)
    if doubts := _too_few(parts[0].figures, len(metrics)):
        return Decision(Status.UNRESOLVED, (*doubts, *reasons), figures)
    return Decision(Status.PASS, tuple(reasons), figures)


def _too_few(figures: tuple[Figure, ...], metrics: int) -> list[str]:
    """Why the pairs that were compared do not carry so many metrics; the same pairs were compared for each."""
    covered = next(float(one.value) for one in figures if one.name == _COVERAGE)
    asked = 1 - FAMILY_ERROR / metrics
    if covered >= asked:
        return []
    share = f"an error of {FAMILY_ERROR} over {metrics}"
    return [f"the pairs cover a median with {covered:.4f}: {share} asks for {asked:.4f}, {fewest(asked)} pairs"]
