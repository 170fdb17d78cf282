"""``needle``: the candidate misses no needle that the incumbent finds."""

from __future__ import annotations

from runner.gates.base import GateInput
from runner.gates.common import Decision, Reading, decide, invalid, of_kind, verdict
from runner.gates.paired import PairedParameters, Words, judge_pairs
from runner.model.sample import NeedleMeasure, NeedleTrial
from runner.model.verdict import Verdict

NAME = "needle"
VERSION = 1


_WORDS = Words(
    share="found by incumbent",
    standing="the standing configuration finds {share:.2f} of the needles",
    poor="the incumbent finds only {share:.2f} of the needles",
    kept="no needle was lost",
)


class Parameters(PairedParameters):
    """How many needles may be lost."""


def judge(given: GateInput) -> Verdict:
    """FAIL for lost needles; UNRESOLVED where the incumbent itself finds too few."""
    return verdict(NAME, VERSION, decide(Parameters, (NeedleMeasure,), given, _decide))


def _decide(wanted: Parameters, readings: tuple[Reading, ...], given: GateInput) -> Decision:
    incumbent, candidate = _trials(readings, "incumbent"), _trials(readings, "candidate")
    if not incumbent:
        return invalid("no needle was hidden from the incumbent")
    if candidate and _asked(incumbent) != _asked(candidate):
        return invalid("the arms were asked for other needles")
    return judge_pairs(wanted, _found(incumbent), _found(candidate), _WORDS)


def _trials(readings: tuple[Reading, ...], arm: str) -> dict[str, NeedleTrial]:
    found = [measure for reading, measure in of_kind(readings, NeedleMeasure) if reading.window.arm == arm]
    return {trial.id: trial for measure in found for trial in measure.trials}


def _asked(trials: dict[str, NeedleTrial]) -> dict[str, tuple[int, int]]:
    return {name: (trial.depth_percent, trial.prompt_tokens) for name, trial in trials.items()}


def _found(trials: dict[str, NeedleTrial]) -> dict[str, bool]:
    return {name: trial.found for name, trial in trials.items()}
