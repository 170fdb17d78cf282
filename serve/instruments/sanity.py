"""Whether free-running text looks like its language and does not run in a circle."""

from __future__ import annotations

from collections.abc import Sequence

from runner.errors import EvidenceError
from runner.model.answer_measure import SanityMeasure, SanityText
from runner.model.base import decimal_text
from runner.model.evidence import Evidence
from runner.model.plan import PlannedWindow
from runner.model.sample import Sample
from runner.stats import total
from serve.instruments.answers import choice, error_text, material
from serve.instruments.base import sample
from serve.instruments.likelihood import by_id

NAME = "sanity"
VERSION = 1

_RUN = 4
_JAPANESE = ((0x3040, 0x30FF), (0x3400, 0x9FFF), (0xFF66, 0xFF9D))
"""Hiragana and Katakana, ideographs, half-width Katakana."""


def reduce(evidence: Sequence[Evidence], window: PlannedWindow) -> Sample:
    """Two shares of each text of the material. Raises EvidenceError for an answer without text or token ids."""
    own = evidence[0]
    exchanges, faults, texts = by_id(own), [], []
    for identifier, asked in material(own, "texts").items():
        exchange = exchanges.get(identifier)
        answer = choice(exchange) if exchange else None
        if answer is None:
            faults.append(f"{identifier}: {error_text(exchange) if exchange else 'never asked'}")
            continue
        text, ids = answer.get("text"), answer.get("token_ids")
        if not isinstance(text, str) or not isinstance(ids, list):
            raise EvidenceError("an answer lacks its text or its token ids", where=identifier)
        runs = [tuple(ids[at : at + _RUN]) for at in range(len(ids) - _RUN + 1)]
        texts.append(
            SanityText(
                id=identifier,
                language=asked["language"],
                tokens=len(ids),
                script=decimal_text(_script(text, asked["language"])),
                distinct=decimal_text(len(set(runs)) / max(len(runs), 1)),
            )
        )
    return sample(evidence, SanityMeasure(texts=tuple(texts)), faults or ([] if texts else ["no text was written"]))


def _script(text: str, language: str) -> float:
    """Share of letters in the language's script; of no letter at all nothing can be read, which is 0."""
    if language == "code":
        return _share([character.isascii() and (character.isprintable() or character.isspace()) for character in text])
    letters = [character for character in text if character.isalpha()]
    return _share([_japanese(one) if language == "ja" else one.isascii() for one in letters])


def _japanese(character: str) -> bool:
    return any(low <= ord(character) <= high for low, high in _JAPANESE)


def _share(found: Sequence[bool]) -> float:
    return total(found) / max(len(found), 1)
