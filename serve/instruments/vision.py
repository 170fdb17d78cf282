"""Whether the number on an image card is read."""

from __future__ import annotations

import re
from collections.abc import Sequence

from runner.model.answer_measure import VisionCard, VisionMeasure
from runner.model.evidence import Evidence
from runner.model.plan import PlannedWindow
from runner.model.sample import Sample
from serve.instruments.answers import choice, error_text, material
from serve.instruments.base import sample
from serve.instruments.likelihood import by_id

NAME = "vision"
VERSION = 1

_NUMBER = re.compile(r"\d+")


def reduce(evidence: Sequence[Evidence], window: PlannedWindow) -> Sample:
    """Cards of the material: ``answer`` is the drawn number. An answer with any other number in it is not right."""
    own = evidence[0]
    exchanges, faults, cards = by_id(own), [], []
    for identifier, card in material(own, "cards").items():
        exchange = exchanges.get(identifier)
        answer = choice(exchange) if exchange else None
        if answer is None:
            faults.append(f"{identifier}: {error_text(exchange) if exchange else 'never asked'}")
            continue
        said = str((answer.get("message") or {}).get("content") or "")
        right = set(_NUMBER.findall(said)) == {card["answer"]}
        cards.append(VisionCard(id=identifier, expected=card["answer"], answer=said[:200], right=right))
    return sample(evidence, VisionMeasure(cards=tuple(cards)), faults or ([] if cards else ["no card was shown"]))
