"""``needle``: the candidate misses no needle that the incumbent finds."""

from __future__ import annotations

from runner.gates.base import GateInput, GateParameters, Limit
from runner.gates.common import Decision, Reading, by_limits, decide, figure, invalid, of_kind, verdict
from runner.model.sample import NeedleMeasure, NeedleTrial
from runner.model.verdict import Status, Verdict
from runner.stats import mcnemar

NAME = "needle"
VERSION = 1


class Parameters(GateParameters):
    """How many needles may be lost."""

    lost: int = 0
    """Most needles that the incumbent finds and the candidate does not."""
    alpha: Limit = "0.05"
    """Error of the exact one-sided McNemar test, which decides besides ``lost``."""
    incumbent: Limit = "0.8"
    """Least share of needles that the incumbent must find for the trial to say anything."""


def judge(given: GateInput) -> Verdict:
    """FAIL for lost needles; UNRESOLVED where the incumbent itself finds too few."""
    return verdict(NAME, VERSION, decide(Parameters, (NeedleMeasure,), given, _decide))


def _decide(wanted: Parameters, readings: tuple[Reading, ...], given: GateInput) -> Decision:
    incumbent, candidate = _trials(readings, "incumbent"), _trials(readings, "candidate")
    if not incumbent:
        return invalid("no needle was hidden from the incumbent")
    share = sum(trial.found for trial in incumbent.values()) / len(incumbent)
    figures = [figure("found by incumbent", share, limit=f">= {wanted.incumbent}")]
    poor = share < float(wanted.incumbent)
    if not candidate:
        reason = f"the standing configuration finds {share:.2f} of the needles"
        return Decision(Status.FAIL if poor else Status.PASS, (reason,), tuple(figures))
    if _asked(incumbent) != _asked(candidate):
        return invalid("the arms were asked for other needles")
    lost = [name for name, trial in incumbent.items() if trial.found and not candidate[name].found]
    won = [name for name, trial in candidate.items() if trial.found and not incumbent[name].found]
    chance = mcnemar(len(lost), len(won))
    figures += [
        figure("lost", len(lost), limit=f"<= {wanted.lost}"),
        figure("won", len(won)),
        figure("McNemar p", chance, limit=f"> {wanted.alpha}"),
    ]
    if len(lost) > wanted.lost or (lost and chance <= float(wanted.alpha)):
        return by_limits((f"lost: {', '.join(lost)}",), tuple(figures), "")
    if poor:
        return Decision(Status.UNRESOLVED, (f"the incumbent finds only {share:.2f} of the needles",), tuple(figures))
    return by_limits((), tuple(figures), "no needle was lost")


def _trials(readings: tuple[Reading, ...], arm: str) -> dict[str, NeedleTrial]:
    found = [measure for reading, measure in of_kind(readings, NeedleMeasure) if reading.window.arm == arm]
    return {trial.id: trial for measure in found for trial in measure.trials}


def _asked(trials: dict[str, NeedleTrial]) -> dict[str, tuple[int, int]]:
    return {name: (trial.depth_percent, trial.prompt_tokens) for name, trial in trials.items()}
