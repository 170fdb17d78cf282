"""What is read before and after a session, where other sessions come and go meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.craft import guard
from runner.craft.guard import Compared, Watched
from tests.runner.craft.bench_kit import git


@pytest.fixture
def watched(home: Path) -> Watched:
    top = home / "guarded"
    checkout, workspace, crafts = top / "checkout", top / "workspace", top / "crafts"
    for folder in (checkout, workspace / "orders", crafts / "own" / "attempts" / "1" / "clone"):
        folder.mkdir(parents=True)
    (workspace / "orders" / "own.yaml").write_text("id: own\n")
    git(checkout, "init", "-q")
    own = crafts / "own" / "attempts" / "1" / "clone"
    return Watched(workspace / "orders" / "own.yaml", checkout, workspace, crafts, (own,))


def clone(watched: Watched, order: str, number: int) -> Path:
    """Another order's clone, as the runner makes one."""
    folder = watched.crafts / order / "attempts" / str(number) / "clone"
    folder.mkdir(parents=True)
    git(folder, "init", "-q")
    (folder / "file").write_text("x")
    return folder


def test_another_orders_attempt_that_begins_meanwhile_is_nobodys_deed(watched: Watched) -> None:
    clone(watched, "other", 1)
    before = guard.read(watched)
    clone(watched, "other", 2)
    clone(watched, "third", 1)
    assert guard.compare(before, watched) == Compared()


@pytest.mark.parametrize("name", ["file", "new", ".git/HEAD"])
def test_a_file_in_another_orders_standing_attempt_is_named(watched: Watched, name: str) -> None:
    other = clone(watched, "other", 1)
    before = guard.read(watched)
    (other / name).write_text("changed")
    found = [finding.detail for finding in guard.compare(before, watched).findings]
    assert any(str(other / name) in detail for detail in found)


def test_an_own_attempt_of_another_number_is_no_place_to_write(watched: Watched) -> None:
    before = guard.read(watched)
    path = clone(watched, "own", 2) / "file"
    assert any(str(path.parent) in finding.detail for finding in guard.compare(before, watched).findings)


def test_a_clone_whose_git_was_replaced_stops_nobody_else(watched: Watched) -> None:
    (watched.crafts / "other" / "attempts" / "1" / "clone").mkdir(parents=True)
    (watched.crafts / "other" / "attempts" / "1" / "clone" / ".git").write_text("gitdir: /nowhere\n")
    before = guard.read(watched)
    assert guard.compare(before, watched) == Compared()


def test_what_somebody_else_changed_is_no_offence_and_is_told(watched: Watched) -> None:
    """The keeper knows what the session asked to change; the rest was a person's own work meanwhile."""
    before = guard.read(watched)
    (watched.workspace / "orders" / "other.yaml").write_text("id: other\n")
    watched.order.write_text("id: own, edited\n")
    (watched.checkout / "note").write_text("x")
    git(watched.checkout, "commit", "-q", "--allow-empty", "-m", "mine")
    told = guard.compare(before, watched, ())
    assert told.findings == ()
    for name in ("orders/other.yaml", "orders/own.yaml", "checkout/note", ".git/refs/heads/main"):
        assert any("changed during the session, not by it: " in one and name in one for one in told.meanwhile), name
    mine = guard.compare(before, watched, (str(watched.workspace / "orders"), str(watched.checkout / "note")))
    assert [finding.kind for finding in mine.findings] == ["order-changed", "main-changed", "outside-clone"]
    assert len(mine.meanwhile) == 1
    assert len(guard.compare(before, watched).findings) == len(told.meanwhile)
