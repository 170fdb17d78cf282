"""Seat manifests, and those that are like another one."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.errors import InputError
from runner.paths import source_root
from runner.steps.seats import SEATS, load_manifest, seat_names


@pytest.fixture
def seats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of manifests with the toy's in it."""
    folder = tmp_path / SEATS
    folder.mkdir(parents=True)
    (folder / "fake.yaml").write_bytes((source_root() / SEATS / "fake.yaml").read_bytes())
    monkeypatch.setattr("runner.steps.seats.source_root", lambda: tmp_path)
    return folder


@pytest.mark.parametrize("name", seat_names())
def test_every_seat_of_this_checkout_can_be_read(name: str) -> None:
    assert load_manifest(name).name == name


def test_what_is_like_another_seat_differs_where_it_says_so(seats: Path) -> None:
    (seats / "one.yaml").write_text("name: one\nlike: fake\nboot_seconds: 7\n")
    (seats / "two.yaml").write_text("name: two\nlike: one\nboot_timeout_seconds: 9\n")
    fake, two = load_manifest("fake"), load_manifest("two")
    assert (two.boot_seconds, two.boot_timeout_seconds) == (7, 9)
    assert (
        two.model_copy(
            update={
                "name": "fake",
                "boot_seconds": fake.boot_seconds,
                "boot_timeout_seconds": fake.boot_timeout_seconds,
            }
        )
        == fake
    )


def test_seats_that_are_like_each_other_are_none(seats: Path) -> None:
    (seats / "one.yaml").write_text("name: one\nlike: two\n")
    (seats / "two.yaml").write_text("name: two\nlike: one\n")
    with pytest.raises(InputError, match="like each other"):
        load_manifest("one")
    (seats / "two.yaml").write_text("name: two\nlike: nobody\n")
    with pytest.raises(InputError, match="no such seat"):
        load_manifest("one")


def test_a_fault_is_named_by_its_line(seats: Path) -> None:
    (seats / "one.yaml").write_text("name: one\nlike: fake\nboot_seconds: soon\n")
    with pytest.raises(InputError, match="not a valid seat manifest") as caught:
        load_manifest("one")
    assert f"{seats / 'one.yaml'}:3:" in caught.value.found
