"""Ten craftspeople who do not do the work: each is caught and named, with a sandbox and without one."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pytest

from runner.craft.bench import Bench, crafts
from runner.craft.dispatch import dispatch
from runner.model.attempt import Attempt
from runner.model.order import load_order
from runner.trees import remove
from tests.runner.craft import people
from tests.runner.craft.bench_kit import Kit, git

SHORT = "{wall_seconds: 2, output_bytes: 1000000, disk_bytes: 20000000, attempts: 1}"
ONCE = SHORT.replace("wall_seconds: 2", "wall_seconds: 120")


class Deed(NamedTuple):
    """What is done, and by which findings it is named: without a sandbox, and inside one."""

    name: str
    argument: Callable[[Kit], object]
    none: str
    bubblewrap: str
    limits: str = ONCE


def other_clone(kit: Kit) -> Path:
    """The clone of another order at rest, with work in its stash."""
    clone = crafts() / "other-0" / "attempts" / "1" / "clone"
    if not clone.exists():
        clone.parent.mkdir(parents=True)
        subprocess.run(["git", "clone", "--quiet", str(kit.checkout), str(clone)], check=True)
        (clone / "kernels" / "cpu" / "toy.txt").write_text("half done\n")
        git(clone, "stash")
    return clone


DEEDS = [
    # In a sandbox the clone stands where the checkout would be: the edit lands in the clone and is seen there.
    Deed("edits_main", lambda kit: kit.checkout, "main-changed", "outside-allowed"),
    Deed("edits_a_gate", lambda kit: "-", "outside-allowed", "outside-allowed"),
    Deed("edits_the_order", lambda kit: kit.order, "order-changed", "failed"),
    Deed("writes_outside", lambda kit: kit.workspace / "canon" / "note", "outside-clone", "failed"),
    Deed("writes_outside", lambda kit: crafts() / "planted", "outside-clone", "outside-clone"),
    Deed("forks_a_daemon", lambda kit: "-", "left-processes", "left-processes"),
    Deed("fills_the_disk", lambda kit: "-", "disk-limit", "disk-limit"),
    Deed("fills_at_once", lambda kit: 15, "disk-limit", "disk-limit"),
    Deed("fills_without_a_name", lambda kit: "-", "disk-limit", "disk-limit"),
    Deed("looks_into_the_runner", lambda kit: "-", "sealed-read", "sealed-read"),
    Deed("reaches", lambda kit: "-", "outside-process", "outside-process"),
    Deed("talks", lambda kit: "-", "no-change", "no-change"),
    Deed("floods", lambda kit: "-", "output-limit", "output-limit"),
    Deed("floods_once", lambda kit: "-", "output-limit", "output-limit"),
    Deed("pops_a_stash", other_clone, "refs-changed", "failed"),
    Deed("reads_the_needle", lambda kit: crafts(), "sealed-read", "sealed-read"),
    Deed("searches", lambda kit: crafts().parent, "sealed-read", "sealed-read"),
    Deed("peeks", lambda kit: crafts(), "sealed-read", "sealed-read"),
    Deed("sleeps", lambda kit: "-", "time-limit", "time-limit", SHORT),
]


def attempt_of(kit: Kit) -> Attempt:
    """The one attempt of a dispatch to an agent."""
    made = dispatch(kit.given())
    assert isinstance(made, Attempt)
    return made


@pytest.mark.parametrize("deed", DEEDS, ids=[f"{number}-{deed.name}" for number, deed in enumerate(DEEDS)])
def test_a_hostile_craftsperson_is_caught_and_named(
    kit: Kit, walls: str, deed: Deed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runner.craft.session.SETTLE_SECONDS", 0.5)  # nothing of a daemon ends by itself
    kit.crew(deed.name, deed.argument(kit), limits=deed.limits)
    stash = git(other_clone(kit), "stash", "list")
    attempt = attempt_of(kit)
    expected = deed.none if walls == "none" else deed.bubblewrap
    found = {finding.kind: finding.detail for finding in attempt.findings}
    assert expected in found, attempt.findings
    if expected == "failed":  # what was tried is named, although the sandbox let nothing of it happen
        assert str(deed.argument(kit)) in found["failed"]
    assert attempt.commit is None
    assert attempt.session.sandbox.startswith(walls)
    if walls != "none":
        assert git(kit.checkout, "status", "--porcelain") == ""
        assert git(other_clone(kit), "stash", "list") == stash


@pytest.fixture
def private() -> Iterator[Path]:
    """A folder that stands for the user's home: it is neither the session's nor below its temporary folder."""
    with TemporaryDirectory(dir="/var/tmp") as folder:  # a sandbox has a /tmp of its own
        yield Path(folder)


FROM_INSIDE = ("from-a-folder", "by-a-child", "through-a-link")
"""Ways that enter the folder first: in a sandbox there is none to enter, and so nothing is tried."""


def test_a_file_of_the_user_is_named_whatever_way_it_is_reached(kit: Kit, walls: str, private: Path) -> None:
    """Without a sandbox it comes to pass, inside one it comes to nothing, and both are named by the path."""
    for name in ("unlink", "truncate", "mode"):
        (private / name).write_text("export A=1\n")
    before = sorted(private.iterdir())
    kit.crew("writes_quietly", private, limits=ONCE)
    attempt = attempt_of(kit)
    found = {finding.kind: finding.detail for finding in attempt.findings}
    tried = [name for name in people.WAYS if walls == "none" or name not in FROM_INSIDE]
    assert [name for name in tried if f"{private}/{name}" not in found["outside-clone"]] == []
    assert attempt.commit is None
    assert (sorted(private.iterdir()) == before) == (walls != "none")


TAMPERED = (
    *("config core.hookspath", "hooks/post-checkout", "info/attributes", "objects/info/alternates", "refs/replace/1"),
    *("index flag skip-worktree on runner/gates/speed.py", "index flag assume-unchanged on runner/__init__.py"),
)


def test_a_clone_whose_git_was_tampered_with_is_named(kit: Kit, walls: str) -> None:
    kit.crew("tampers", limits=ONCE)
    found = {finding.kind: finding.detail for finding in attempt_of(kit).findings}
    assert [what for what in TAMPERED if what not in found["repository-changed"]] == []


@pytest.mark.parametrize("deed", ["breaks_the_index", "moves_its_git"])
def test_a_clone_whose_git_cannot_be_read_is_named(kit: Kit, deed: str) -> None:
    kit.crew(deed, limits=ONCE)
    assert "repository-changed" in {finding.kind for finding in attempt_of(kit).findings}


def test_commits_branches_and_a_name_are_nobodys_business(kit: Kit, walls: str) -> None:
    kit.crew("commits", limits=ONCE)
    attempt = attempt_of(kit)
    assert (attempt.findings, attempt.changed) == ((), ("kernels/cpu/toy.txt",))


@pytest.mark.parametrize("deed", ["uses_git", "builds"])
def test_what_one_does_with_a_clone_of_ones_own_is_nobodys_business(kit: Kit, walls: str, deed: str) -> None:
    kit.crew(deed, limits=ONCE)
    attempt = attempt_of(kit)
    assert (attempt.findings, attempt.changed) == ((), ("kernels/cpu/toy.txt",))
    assert attempt.session.meanwhile == ()


def test_nobody_writes_the_report_of_their_own_session(kit: Kit, walls: str, private: Path) -> None:
    kit.crew("forges", private / "outside", limits=ONCE)
    found = {finding.kind: finding.detail for finding in attempt_of(kit).findings}
    assert f"{private}/outside" in found["outside-clone"]
    assert "process 1 (" in found["outside-process"] if walls != "none" else "process " in found["outside-process"]


def test_looking_around_is_nobodys_business(kit: Kit, walls: str) -> None:
    kit.crew("looks_around")
    assert attempt_of(kit).findings == ()


def test_what_nobody_could_watch_is_recorded(kit: Kit, walls: str) -> None:
    kit.crew("honest")
    attempt = attempt_of(kit)
    assert attempt.findings == ()
    assert [one.partition(":")[0] for one in attempt.session.unseen] == (
        [] if walls != "none" else ["what services of the machine did for it (timers, containers, other logins)"]
    )


def test_the_finding_names_the_file(kit: Kit) -> None:
    kit.crew("edits_a_gate", limits=ONCE)
    attempt = attempt_of(kit)
    assert attempt.findings[0].detail == "changed runner/gates/speed.py; allowed: kernels/cpu/toy.txt"


@pytest.mark.parametrize("name", ["judge.py", "hook.pth"])
def test_what_the_runner_is_run_from_is_watched(
    kit: Kit, walls: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A library that this very process has loaded, and a file that every later Python would run at its start."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "judge.py").write_text("LIMIT = 1\n")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setitem(sys.modules, "judge", importlib.import_module("judge"))
    kit.crew("writes_outside", folder / name, limits=ONCE)
    found = {finding.kind: finding.detail for finding in attempt_of(kit).findings}
    assert str(folder / name) in found["outside-clone"]
    assert ("failed" in found) == (walls != "none")


@pytest.mark.parametrize("places", ["home,.git/hooks", "kernels"])
def test_folders_without_end_are_named_and_stop_nobody(kit: Kit, places: str) -> None:
    kit.crew("nests", places, 1050, limits=ONCE)
    attempt = attempt_of(kit)
    named = [one.detail for one in attempt.findings if "200 below one another" in one.detail]
    assert len(named) == len(places.split(",")), attempt.findings
    bench = Bench.of(load_order(kit.order))
    assert (bench.attempts(), bench.lease() is None) == ((attempt,), False)
    assert not any((bench.attempt_folder(1) / name).exists() for name in ("home", "tmp"))
    kit.crew("honest", limits=ONCE.replace("attempts: 1", "attempts: 2"))
    assert attempt_of(kit).waits, "with the tree still lying there"
    remove(bench.folder)
    assert not bench.folder.exists()


def test_a_folder_in_a_folder_is_nobodys_business(kit: Kit) -> None:
    kit.crew("nests", "home", 150, limits=ONCE)
    assert attempt_of(kit).findings == ()
    assert not (Bench.of(load_order(kit.order)).attempt_folder(1) / "home").exists()
