"""Calibration text: what it may share with the text that gates measure on, and token rows of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from recipe import bake, calibration
from recipe.mini.random_pack import generate
from recipe.product import Job
from runner.errors import InputError
from runner.model.order.bake import Bake, Calibration, Rate
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


def test_text_that_is_measured_on_is_refused_before_anything_is_coded(tmp_path: Path) -> None:
    """`check` and `plan` say so, where a whole conversion would have been in vain."""
    standing = generate(tmp_path / "pack", layers=1, hidden=128, intermediate=128, experts=2, topk=1, vocabulary=300)
    held = calibration._held_out()[0].relative_to(source_root()).as_posix()
    for texts, sound in (("recipe/mini/calibration.jsonl", True), (held, False)):
        wish = Calibration(texts=texts, documents=3)
        recipe = Bake(preset="glm4-moe-attention", rates=(Rate(modules="*", bits=2),), calibration=wish)
        job = Job(recipe, standing, source_root(), tmp_path / "product", tmp_path / "work")
        if sound:
            assert bake.estimate(job).counts["modules at K=2"] == "4"
        else:
            with pytest.raises(InputError, match="measured on"):
                bake.estimate(job)
    assert not (tmp_path / "work").exists()


@pytest.mark.parametrize(
    "line",
    [b"not json", b"[]", b'{"id": 1, "text": "a"}', b'{"id": ["a"], "text": "a"}', b'{"id": "a", "text": 2}',
     b"\xff\xfe", b'{"id": "a"}', b'{"id": "a", "text": "\\ud800"}', b'{"id": "a", "text": "a", "text": "b"}'],
)  # fmt: skip
def test_a_line_that_is_no_document_is_named(line: bytes, tmp_path: Path) -> None:
    file = tmp_path / "texts.jsonl"
    file.write_bytes(b'{"id": "first", "text": "one"}\n' + line + b"\n")
    with pytest.raises(InputError, match="not a document") as caught:
        calibration.read_texts(file)
    assert caught.value.where == f"{file}:2"


def test_lines_end_at_line_feeds_and_blank_ones_are_left_out(tmp_path: Path) -> None:
    file = tmp_path / "texts.jsonl"
    text = "one\u2028two\u0085three\x0bfour"
    document = json.dumps({"id": "a", "text": text}, ensure_ascii=False)
    file.write_text(f"{document}\r\n\n{document}\n \n\n", encoding="utf-8", newline="")
    assert [one["text"] for one in calibration.read_texts(file)] == [text, text]
    with pytest.raises(InputError, match="no such text"):
        calibration.read_texts(tmp_path / "none.jsonl")
