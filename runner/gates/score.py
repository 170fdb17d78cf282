"""``score``: a small exact-match set; the candidate loses no item that the incumbent gets right."""

from __future__ import annotations

from runner.gates.base import GateInput, Limit
from runner.gates.common import Decision, Reading, decide, invalid, of_kind, verdict
from runner.gates.paired import PairedParameters, Words, judge_pairs
from runner.model.answer_measure import ScoreItem, ScoreMeasure
from runner.model.verdict import Verdict

NAME = "score"
VERSION = 1

_WORDS = Words(
    share="right by incumbent",
    standing="the standing configuration gets {share:.2f} of the items right",
    poor="the incumbent gets only {share:.2f} of the items right",
    kept="no item was lost",
)


class Parameters(PairedParameters):
    """As for needles; chance alone is right once in as many items as an item has choices."""

    lost: int = 2
    """Most items that the incumbent gets right and the candidate does not: near a tie rounding decides."""
    incumbent: Limit = "0.5"
    """Least share of items that the incumbent must get right for them to say anything."""


def judge(given: GateInput) -> Verdict:
    """FAIL naming the lost items; INVALID where the arms answered other questions."""
    return verdict(NAME, VERSION, decide(Parameters, (ScoreMeasure,), given, _decide))


def _decide(wanted: Parameters, readings: tuple[Reading, ...], given: GateInput) -> Decision:
    incumbent, candidate = _items(readings, "incumbent"), _items(readings, "candidate")
    if not incumbent:
        return invalid("the incumbent was asked nothing")
    if candidate and _asked(incumbent) != _asked(candidate):
        return invalid("the arms were asked other questions")
    return judge_pairs(wanted, _right(incumbent), _right(candidate), _WORDS)


def _items(readings: tuple[Reading, ...], arm: str) -> dict[str, ScoreItem]:
    found = [measure for reading, measure in of_kind(readings, ScoreMeasure) if reading.window.arm == arm]
    return {item.id: item for measure in found for item in measure.items}


def _asked(items: dict[str, ScoreItem]) -> dict[str, int]:
    return {name: item.choices for name, item in items.items()}


def _right(items: dict[str, ScoreItem]) -> dict[str, bool]:
    return {name: item.right for name, item in items.items()}
