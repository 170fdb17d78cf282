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


def test_the_committed_calibration_text_is_clean() -> None:
    documents = calibration.read_texts(source_root() / "recipe/mini/calibration.jsonl")
    assert len(documents) == 36
    calibration.refuse_overlap(documents, [d for file in calibration._held_out() for d in calibration.read_texts(file)])
