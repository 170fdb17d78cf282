"""``vision``: the numbers on image cards are read; nothing that the incumbent reads is lost."""

from __future__ import annotations

from runner.gates.base import GateInput
from runner.gates.common import Decision, Reading, decide, invalid, of_kind, verdict
from runner.gates.paired import PairedParameters, Words, judge_pairs
from runner.model.answer_measure import VisionCard, VisionMeasure
from runner.model.verdict import Verdict

NAME = "vision"
VERSION = 1

_WORDS = Words(
    share="read by incumbent",
    standing="the standing configuration reads {share:.2f} of the cards",
    poor="the incumbent reads only {share:.2f} of the cards",
    kept="no card was lost",
)


class Parameters(PairedParameters):
    """As for needles."""


def judge(given: GateInput) -> Verdict:
    """FAIL naming the cards; INVALID where the arms were shown other ones."""
    return verdict(NAME, VERSION, decide(Parameters, (VisionMeasure,), given, _decide))


def _decide(wanted: Parameters, readings: tuple[Reading, ...], given: GateInput) -> Decision:
    incumbent, candidate = _cards(readings, "incumbent"), _cards(readings, "candidate")
    if not incumbent:
        return invalid("the incumbent was shown nothing")
    if candidate and _shown(incumbent) != _shown(candidate):
        return invalid("the arms were shown other cards")
    right = {name: card.right for name, card in incumbent.items()}
    return judge_pairs(wanted, right, {name: card.right for name, card in candidate.items()}, _WORDS)


def _cards(readings: tuple[Reading, ...], arm: str) -> dict[str, VisionCard]:
    found = [measure for reading, measure in of_kind(readings, VisionMeasure) if reading.window.arm == arm]
    return {card.id: card for measure in found for card in measure.cards}


def _shown(cards: dict[str, VisionCard]) -> dict[str, str]:
    return {name: card.expected for name, card in cards.items()}
