"""One id and version are one order: a second file of a folder that says the same is named, in both."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.check import check_file
from tests.runner.checks.orders_for_checks import SOUND


@pytest.fixture
def order(home: Path) -> Path:
    path = home / "workspace" / "orders" / "sound.yaml"
    path.write_text(SOUND)
    return path


@pytest.mark.parametrize("line", ["id: sound", "id:   'sound'  # a copy", '"id": "sound"'])
def test_a_second_file_with_the_same_id_is_named_in_both(order: Path, line: str) -> None:
    copy = order.with_name("copy.yaml")
    copy.write_text(SOUND.replace("id: sound", line, 1).replace("A sound order", "Another"))
    for path, other in ((order, copy), (copy, order)):
        (placed,) = check_file(path)
        assert placed.fault.path == ("id",)
        assert f"{other.name} is version 1 of an order sound too" in placed.fault.message
        assert placed.place.line == 2


@pytest.mark.parametrize(
    "other",
    [
        SOUND.replace("id: sound", "id: sound-2"),
        SOUND.replace("id: sound", "id: sound\nversion: 2"),
        "id: sound\n",
        "id: sound\0",
        "- id: sound",
        "items: [{id: sound}]\n",
    ],
    ids=["another-id", "another-version", "no-order", "binary", "a-list", "another-record"],
)
def test_what_is_another_order_or_none_is_nobodys_fault(order: Path, other: str) -> None:
    order.with_name("other.yaml").write_text(other)
    assert check_file(order) == ()


def test_other_names_of_the_same_file_and_what_is_no_file_are_left_alone(order: Path) -> None:
    order.with_name("link.yaml").symlink_to(order)
    order.with_name("nowhere.yaml").symlink_to("gone")
    order.with_name("folder.yaml").mkdir()
    (order.parent / "people" / "copy.yaml").parent.mkdir(exist_ok=True)
    (order.parent / "people" / "copy.yaml").write_text(SOUND)
    assert check_file(order) == ()
