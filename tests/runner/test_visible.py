"""Whatever an order, an engine or a reviewer wrote, a terminal shows it and does nothing else."""

from __future__ import annotations

import unicodedata
from io import StringIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from runner.cli import run
from runner.review.text import Text
from runner.visible import visible

REVIEW = """schema_version: 1
order: any
version: 1
reviews:
  - reviewer: one
    lens: any
    claims: [{question: q, value: 1, unit: "st\ue000eps", evidence: "x\ue001", confidence: low}]
"""


@given(st.text())
def test_nothing_hidden_is_left(text: str) -> None:
    shown = visible(text, keep="\n")
    assert all(
        one == "\n" or unicodedata.category(one) not in ("Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp") for one in shown
    )
    assert visible(shown, keep="\n") == shown


def test_words_of_any_language_stay() -> None:
    text = "作業指示書 — ½ × 3 µs, naïve"
    assert visible(text) == text
    assert visible("a\u3164b\u202ec\ue000") == "a\\u3164b\\u202ec\\ue000"


def test_commands_print_no_escape_sequence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "reviews.yaml"
    path.write_text(REVIEW)
    assert run(["conflicts", str(path)]) in (0, 2)
    out = capsys.readouterr().out
    assert "\ue000" not in out
    assert "st\\ue000eps" in out
    path.write_text(REVIEW.replace("\ue000", "\\e[31m"))
    assert run(["conflicts", str(path)]) == 3
    told = capsys.readouterr()
    assert "U+001B" in told.err
    assert "\x1b" not in told.out + told.err
    assert run(["check", "no\x1b[31msuch"]) == 3
    assert "\x1b" not in capsys.readouterr().err


def test_a_table_shows_no_escape_sequence() -> None:
    page = StringIO()
    Console(file=page, width=80).print(Text("the engine said \x1b[2J\x1b]0;t\a"))
    assert "\x1b" not in page.getvalue()
