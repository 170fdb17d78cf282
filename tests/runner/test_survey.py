"""A survey: no seat, claims that are looked at again, a signed report through the same steps as any other."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from runner.cli import run
from runner.paths import source_root

SURVEY = """schema_version: 1
id: reading
kind: survey
title: What the small pack holds
date: "2026-11-30"
people: {issuer: maintainers, approver: maintainers}
intent: {goal: Find out., why: A test asks for it., definition_of_done: Every claim was looked at again.}
questions: [How many bits do routed experts have?]
gates:
  - {name: claims, parameters: {unseen: 1}}
facts:
  - id: calculation
    statement: A profile of 24 steps.
    value: 24
    unit: steps
    label: measured
    scope: the profile
    probe: {kind: calculation, expression: "gcd(1032, 72)"}
  - id: readme
    statement: The runner signs.
    label: measured
    scope: this checkout
    probe: {kind: quote, file: README.md, text: signed report}
  - {id: heard, statement: Somebody said so., label: assumed, scope: nowhere}
  - {id: wrong, statement: 46 steps., value: 46, label: estimate, status: refuted}
"""


def executed(home: Path, text: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, object], str]:
    """Exit code, the one gate's figures and the report's folder."""
    path = home / "workspace" / "orders" / "reading.yaml"
    path.write_text(text, encoding="utf-8")
    code = run(["execute", str(path), "--json", "--quiet"])
    answer = json.loads(capsys.readouterr().out)
    return code, answer["verdicts"][0], answer["report"]


def test_claims_are_derived_again_and_signed(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, verdict, report = executed(home, SURVEY, capsys)
    assert (code, verdict["status"]) == (0, "PASS")
    assert verdict["reasons"] == ["2 of 3 claims were derived again"]
    assert run(["verify", report, "--deep", "--require", "pass"]) == 0
    said = capsys.readouterr().out
    assert re.search(r"read again from the full evidence in \S+: 1 samples", said)
    payload = (Path(report) / "report.md").read_text(encoding="utf-8")
    assert "wrong" not in payload, "a refuted fact claims nothing"


def test_what_nobody_could_look_at_is_counted(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, verdict, _ = executed(home, SURVEY.replace("unseen: 1", "unseen: 0"), capsys)
    assert (code, verdict["status"]) == (2, "UNRESOLVED")
    probe = "id: heard, probe: {kind: quote, file: gone.md, text: x}"
    code, verdict, _ = executed(home, SURVEY.replace("id: heard", probe), capsys)
    assert (code, verdict["status"]) == (0, "PASS")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("value: 24\n", "value: 46\n", "the probe gives 24"),
        ("text: signed report", "text: nobody wrote this", "does not say"),
        ("- {name: claims, parameters: {unseen: 1}}", "- {name: speed}", "a survey has gate claims alone"),
        ("parameters: {unseen: 1}", "parameters: {unseen: some}", "unseen"),
    ],
)
def test_a_survey_that_contradicts_itself_is_not_run(
    home: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, words: str
) -> None:
    path = home / "workspace" / "orders" / "reading.yaml"
    path.write_text(SURVEY.replace(old, new, 1), encoding="utf-8")
    assert run(["check", str(path)]) == 3
    told = capsys.readouterr()
    assert words in told.out + told.err
    assert run(["execute", str(path), "--quiet"]) == 3


def test_the_campaigns_reading_runs(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["execute", str(source_root() / "orders" / "T5.yaml"), "--quiet"]) == 0
    assert "1 of 6 claims" in capsys.readouterr().out
