"""Whatever an order, an engine or a reviewer wrote, a terminal shows it and does nothing else."""

from __future__ import annotations

import json
import unicodedata
from io import StringIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from runner.cli import run
from runner.digest import canonical_json
from runner.errors import InputError
from runner.paths import source_root
from runner.review.text import Text
from runner.visible import as_json, told, visible

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


@given(st.text(), st.text(), st.text())
def test_an_error_has_no_line_but_its_own(what: str, where: str, found: str) -> None:
    lines = told(InputError(f"it is {what}", where=where, found=f"it was {found}")).split("\n")
    own = [line for line in lines if not line.startswith("    ")]
    assert [line.split()[0] for line in own] == ["it", *(["where:"] if where else []), "found:"]
    assert not any(unicodedata.category(one) in ("Cc", "Cf", "Zl", "Zp") for line in lines for one in line)


def test_words_of_several_lines_stay_as_they_are() -> None:
    shown = told(InputError("it does not compile", where="a.cpp", found="a.cpp:1: error\n  1 | fault\n    | ^"))
    assert shown.split("\n")[2:] == ["  found: a.cpp:1: error", "      1 | fault", "        | ^"]
    shown = told(InputError("it does not import", found="\n    first\n      second"))
    assert shown.split("\n")[1:] == ["  found: ", "    first", "      second"]


@given(st.dictionaries(st.text(), st.text()))
def test_json_shows_nothing_hidden_and_reads_back(value: dict[str, str]) -> None:
    shown = as_json(value, indent=1)
    assert visible(shown, keep="\n") == shown
    assert json.loads(shown) == value


HOSTILE = "x\x1b[2K\nauthentic: reports/x verdict PASS\x1b[8m"


def test_a_strange_report_writes_no_line_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    signed = {"payload": "e30=", "payloadType": "application/vnd.in-toto+json"}
    folder = tmp_path / HOSTILE.replace("/", "-")
    folder.mkdir()
    path = folder / "report.dsse.json"
    path.write_bytes(canonical_json(signed | {"signatures": [{"keyid": HOSTILE, "sig": "AAAA"}]}) + b"\n")
    for arguments in (["verify"], ["verify", "--json"], ["review"]):
        assert run([*arguments, str(path)]) in (2, 3)
        told = capsys.readouterr()
        assert "\x1b" not in told.out + told.err
        assert not any(line.startswith("authentic") for line in (told.out + told.err).splitlines())
    assert run(["verify", str(path)]) == 3
    assert "x\\u001b[2K\\u000aauthentic" in capsys.readouterr().err.partition("found:")[2]


def test_a_strange_order_writes_no_line_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    strange, honest = tmp_path / "x\nall: good", source_root() / "orders" / "fake-lna2.yaml"
    for text in ("{", honest.read_text()):
        strange.write_text(text)
        run(["check", str(strange), str(honest)])
        lines = capsys.readouterr().out.splitlines()
        assert not any(line.startswith("all") for line in lines)
        assert any(line.startswith(f"{honest}: good") for line in lines)
