"""Greedy texts beside those of a reference window: where they part, and how near to a tie the reference was there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from runner.errors import EvidenceError
from runner.model.base import decimal_text
from runner.model.engine_measure import BandText, GreedyBandMeasure
from runner.model.evidence import Evidence
from runner.model.plan import PlannedWindow
from runner.model.sample import Sample
from serve.instruments.answers import choice, error_text, material
from serve.instruments.base import sample
from serve.instruments.likelihood import TOKEN_NAME, by_id, state_faults

NAME = "greedy-band"
VERSION = 1


def reduce(evidence: Sequence[Evidence], window: PlannedWindow) -> Sample:
    """The window's own evidence against the reference's, text by text; the reference reads against itself.

    Up to the first other token both had the same context, so the reference's own logprobs say how nearly it would have
    chosen the other: rounding may decide between two tokens that are as good as equally likely, and nothing else may.
    What follows has another context and is not compared. Raises EvidenceError without a reference.
    """
    own, reference = evidence[0], evidence[-1]
    if len(evidence) < 2 and "reference_window" in window.arguments:
        raise EvidenceError("the reference window's evidence is missing", where=f"window {window.id}")
    faults = state_faults(own)
    mine, theirs = by_id(own), by_id(reference)
    texts = []
    for identifier, text in material(own, "texts").items():
        exchange, other = mine.get(identifier), theirs.get(identifier)
        answer, answered = (choice(one) if one else None for one in (exchange, other))
        if answer is None:
            faults.append(f"{identifier}: {error_text(exchange) if exchange else 'never asked'}")
        elif answered is None:
            faults.append(f"{identifier}: the reference has no answer")
        elif text != material(reference, "texts").get(identifier):
            faults.append(f"{identifier}: the reference was asked something else")
        else:
            compared = _compare(identifier, text["language"], answer, answered)
            texts.append(compared)
            faults += [] if compared.tokens else [f"{identifier}: an empty text"]
    if not texts:
        faults.append("no text was compared")
    return sample(evidence, GreedyBandMeasure(reference_window=reference.window, texts=tuple(texts)), faults)


def _compare(identifier: str, language: str, answer: Mapping[str, Any], reference: Mapping[str, Any]) -> BandText:
    """Raises EvidenceError where an answer has no token ids, or the reference no top logprobs where they part."""
    ids, theirs = _ids(identifier, answer), _ids(identifier, reference)
    length = min(len(ids), len(theirs))
    common = next((at for at in range(length) if ids[at] != theirs[at]), length)
    gap = None
    if common < length:
        top = _top(identifier, reference, common)
        other = top.get(f"{TOKEN_NAME}{ids[common]}")
        gap = decimal_text(max(top.values()) - other) if other is not None else None
    return BandText(id=identifier, language=language, tokens=length, common=common, gap=gap)


def _ids(identifier: str, answer: Mapping[str, Any]) -> list[int]:
    ids = answer.get("token_ids")
    if not isinstance(ids, list):
        raise EvidenceError("a greedy text has no token ids", where=identifier, found=repr(ids))
    return ids


def _top(identifier: str, answer: Mapping[str, Any], at: int) -> dict[str, float]:
    try:
        found: dict[str, float] = dict(answer["logprobs"]["top_logprobs"][at])
        return found
    except (KeyError, TypeError, IndexError, ValueError) as error:
        raise EvidenceError(
            "the reference has no top logprobs where the texts part", where=f"{identifier}, token {at}"
        ) from error
