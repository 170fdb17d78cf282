"""Facts cited from a survey: the same there, and standing there."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.check import check_file
from runner.errors import InputError
from runner.model.order import parse_order

SURVEY = """schema_version: 1
id: reading
kind: survey
title: A reading
date: "2026-11-30"
people: {issuer: maintainers, approver: maintainers}
intent: {goal: Find out., why: A test asks for it., definition_of_done: It is written down.}
facts:
  - {id: width, statement: It is wide., value: 512, unit: features, label: measured, scope: odd, evidence: {file: a.md}}
  - {id: old, statement: It was wide., value: 1024, label: estimate, status: superseded, superseded_by: width}
  - {id: wrong, statement: It was never so., label: assumed, status: refuted}
"""
CITING = (
    SURVEY.split("facts:", maxsplit=1)[0].replace("id: reading", "id: citing").replace("survey", "patch")
    + """facts:
  - id: mine
    statement: It is wide.
    value: 512
    unit: features
    label: measured
    scope: odd
    evidence: {order: reading, fact: width}
"""
)


@pytest.fixture
def orders(home: Path) -> Path:
    """The workspace's orders, the survey among them."""
    folder = home / "workspace" / "orders"
    (folder / "Reading.yaml").write_text(SURVEY, encoding="utf-8")
    return folder


def told(orders: Path, old: str = "", new: str = "") -> list[str]:
    assert old in CITING
    path = orders / "citing.yaml"
    path.write_text(CITING.replace(old, new, 1), encoding="utf-8")
    return [str(one) for one in check_file(path)]


def test_a_citation_that_holds(orders: Path) -> None:
    assert told(orders) == []


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("value: 512", "value: 1024", "order reading says 512 features, not 1024 features"),
        ("label: measured", "label: assumed", "order reading calls it measured, not assumed"),
        ("fact: width", "fact: height", "order reading has no fact height"),
        ("fact: width", "fact: old", "fact old of order reading is superseded; width stands instead"),
        ("fact: width", "fact: wrong", "fact wrong of order reading is refuted"),
        ("order: reading", "order: nothing", "there is no order nothing"),
    ],
)
def test_one_that_does_not_says_why_and_where(orders: Path, old: str, new: str, words: str) -> None:
    (fault,) = told(orders, old, new)
    assert words in fault
    assert fault.startswith(f"{orders}/citing.yaml:15:")


def test_an_order_that_cannot_be_read_supports_nothing(orders: Path) -> None:
    (orders / "Reading.yaml").write_text("a: [", encoding="utf-8")
    assert "order reading cannot be read" in told(orders)[0]


def test_a_fact_that_no_longer_stands_may_cite_what_no_longer_stands(orders: Path) -> None:
    assert told(orders, "scope: odd\n", "scope: odd\n    status: refuted\n") == []


def test_half_a_citation_is_none() -> None:
    with pytest.raises(InputError, match="names an order and one of its facts"):
        parse_order(CITING.replace(", fact: width", ""))


def test_an_order_goes_by_its_id_and_not_by_the_name_of_its_file(orders: Path) -> None:
    (orders / "Reading.yaml").rename(orders / "notes.yaml")
    assert told(orders) == []
    (orders / "reading.yaml").write_text(
        SURVEY.replace("id: reading", "id: other").replace("512", "1"), encoding="utf-8"
    )
    assert told(orders) == []
    (orders / "notes.yaml").unlink()
    assert "there is no order reading" in told(orders)[0]


def test_the_latest_version_of_an_order_is_cited(orders: Path) -> None:
    later = SURVEY.replace("id: reading", "id: reading\nversion: 2").replace("value: 512", "value: 500")
    (orders / "a-later.yaml").write_text(later, encoding="utf-8")
    assert "order reading says 500 features" in told(orders)[0]


def test_an_order_is_no_evidence_of_itself(orders: Path) -> None:
    assert "is its own evidence" in told(orders, "order: reading, fact: width", "order: citing, fact: mine")[0]


def test_citations_in_a_circle_lead_nowhere(orders: Path) -> None:
    back = SURVEY.replace("evidence: {file: a.md}", "evidence: {order: citing, fact: mine}")
    (orders / "Reading.yaml").write_text(back, encoding="utf-8")
    assert "in a circle: citing/mine, reading/width, citing/mine" in told(orders)[0]


def test_a_citation_of_a_citation_is_followed(orders: Path) -> None:
    source = SURVEY.replace("id: reading", "id: source")
    middle = SURVEY.replace("evidence: {file: a.md}", "evidence: {order: source, fact: width}")
    (orders / "Reading.yaml").write_text(middle, encoding="utf-8")
    (orders / "source.yaml").write_text(source, encoding="utf-8")
    assert told(orders) == []
    (orders / "source.yaml").write_text(source.replace("512", "256"), encoding="utf-8")
    assert "order source says 256 features" in told(orders)[0]


@pytest.mark.parametrize(("expression", "holds"), [("2 * 256", True), ("2 * 128", False), ("wide / 2", False)])
def test_what_is_cited_holds_where_it_stands(orders: Path, expression: str, holds: bool) -> None:
    wide = "\n  - {id: wide, statement: It was wide., value: 1024, label: estimate, status: refuted}\n"
    probed = SURVEY.replace("{file: a.md}", f"{{file: a.md}}, probe: {{kind: calculation, expression: {expression}}}")
    (orders / "Reading.yaml").write_text(probed.rstrip() + wide, encoding="utf-8")
    assert [("does not hold in order reading" in one) for one in told(orders)] == ([] if holds else [True])
