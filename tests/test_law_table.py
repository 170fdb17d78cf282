"""``tests/README.md`` against the tests: what it names exists, and it leaves nothing out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parent
TEXT = (FOLDER / "README.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`((?!scripts/)(?:[a-z_-]+/)+[^`\s<*{]+)`", TEXT)))
CASES = [path.parent.name for path in FOLDER.glob("*/*/*/input.json")]
FAILURES = [f"FL-{number:02d}" for number in range(1, 73)] + [f"SF-{number:02d}" for number in range(1, 19)]
PUBLIC = tuple(number for number in range(1, 45) if number % 3)
"""The public cases are numbered so."""


def rows(title: str) -> list[str]:
    """First cells of a section's table."""
    section = TEXT.split(f"## {title}\n")[1].split("\n## ", maxsplit=1)[0]
    return [line.split("|")[1].strip() for line in section.splitlines() if line.startswith("| ")][2:]


@pytest.mark.parametrize("name", NAMED)
def test_what_is_named_exists(name: str) -> None:
    path, _, test = name.partition("::")
    assert (FOLDER / path).exists()
    if test:
        assert f"def {test}(" in (FOLDER / path).read_text(encoding="utf-8")


def test_every_law_has_its_tests() -> None:
    assert [row.split()[0] for row in rows("The laws")] == [str(law) for law in range(1, 13)]


def test_every_claim_is_shown() -> None:
    assert [int(row.split()[0]) for row in rows("What other tools do not have")] == list(range(1, 26))


def test_every_public_failure_is_placed() -> None:
    assert [int(row.split()[0]) for row in rows("Public failures")] == list(PUBLIC)


def test_every_failure_of_the_campaign_is_a_case_or_is_placed() -> None:
    own = {number for case in CASES for number in re.findall(r"(?:FL|SF)-\d\d", case)}
    assert len(own) >= 30
    placed = rows("The campaign's failures")
    assert placed == sorted(set(placed) & set(FAILURES))
    assert own | set(placed) == set(FAILURES)
