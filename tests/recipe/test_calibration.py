"""Calibration text: what it may share with the text that gates measure on, and token rows of it."""

from __future__ import annotations

import pytest

from recipe import calibration
from runner.errors import InputError
from runner.paths import source_root


def test_calibration_text_may_not_be_measured_on() -> None:
    """Field case 31: a shared passage at any offset, or the whole document, or the other letters and blanks."""
    held = [
        {
            "id": "a",
            "text": "x" * 5
            + "The quick brown fox jumps over the lazy dog, and then it sleeps until the next morning comes.",
        }
    ]
    passage = held[0]["text"][5:95]
    for text in (passage, f"{'y' * 13}{passage.upper()}", passage.replace(" ", "\n  ")):
        with pytest.raises(InputError, match="measured on"):
            calibration.refuse_overlap([{"id": "b", "text": text}], held)
    with pytest.raises(InputError, match="measured on"):
        calibration.refuse_overlap([{"id": "a", "text": "other"}], held)
    calibration.refuse_overlap([{"id": "b", "text": passage[:50]}], held)


@pytest.mark.parametrize(
    "between", ["\u200b", "\u00ad", "\u2060", ".", "-", "\u0301", "\ufe0f"], ids=lambda one: f"{ord(one):04x}"
)
def test_what_nobody_reads_makes_no_other_text(between: str) -> None:
    held = calibration.read_texts(calibration._held_out()[1])[:2]
    text = between.join(held[0]["text"][200:900])
    with pytest.raises(InputError, match="measured on"):
        calibration.refuse_overlap([{"id": "b", "text": text}], held)


def test_a_changed_letter_here_and_there_makes_no_other_text() -> None:
    held = calibration.read_texts(calibration._held_out()[1])[:2]
    text = held[0]["text"]
    changed = "".join(f"{text[start : start + 45]}q7" for start in range(0, len(text), 45))
    with pytest.raises(InputError, match="measured on") as caught:
        calibration.refuse_overlap([{"id": "b", "text": changed}], held)
    assert "pieces" in caught.value.found


def test_the_committed_calibration_text_is_clean() -> None:
    documents = calibration.read_texts(source_root() / "recipe/mini/calibration.jsonl")
    assert len(documents) == 36
    calibration.refuse_overlap(documents, [d for file in calibration._held_out() for d in calibration.read_texts(file)])
