"""A git that converts line ends leaves every file alone whose bytes are signed, sealed or compared."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from runner.attest.trust import load_trust
from runner.errors import CarveError
from runner.paths import source_root
from runner.verify import verify
from runner.workspace import ATTRIBUTES, make_workspace

REPORT = "reports/kernel-dense/20261130-141114-0709946c"
COPIED = (REPORT, "reports/ledger", "canon", "orders", "tests/records/v1", "tests/gates/kld", "tests/instruments/kld")


def git(folder: Path, *words: str) -> str:
    """Without what whoever runs this has configured."""
    owner = ("-c", "user.name=demo", "-c", "user.email=demo@example.org", "-c", "core.autocrlf=true")
    environment = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1", "PATH": "/usr/local/bin:/usr/bin:/bin"}
    done = subprocess.run(
        ["git", *owner, *words], cwd=folder, check=True, capture_output=True, text=True, env=environment
    )
    return done.stdout


def cloned(tmp_path: Path, *, told: bool) -> tuple[Path, Path]:
    """A repository with these files, and its clone by a git that converts line ends."""
    origin = tmp_path / "origin"
    for name in COPIED:
        shutil.copytree(source_root() / name, origin / name)
    if told:
        shutil.copy(source_root() / ATTRIBUTES, origin / ATTRIBUTES)
    git(origin, "init", "--quiet")
    git(origin, "add", "--all")
    git(origin, "commit", "--quiet", "--message", "Files whose bytes count")
    git(tmp_path, "clone", "--quiet", "origin", "clone")
    return origin, tmp_path / "clone"


def changed(origin: Path, clone: Path) -> list[str]:
    names = [path.relative_to(origin) for path in origin.rglob("*") if path.is_file() and ".git" not in path.parts]
    return [str(name) for name in names if (origin / name).read_bytes() != (clone / name).read_bytes()]


def test_a_clone_that_converts_line_ends_still_verifies(tmp_path: Path) -> None:
    origin, clone = cloned(tmp_path, told=True)
    assert changed(origin, clone) == []
    assert verify(clone / REPORT, load_trust(clone, user=False), clone, deep=True).replayed


def test_without_the_attributes_nothing_would(tmp_path: Path) -> None:
    origin, clone = cloned(tmp_path, told=False)
    assert f"{REPORT}/report.dsse.json" in changed(origin, clone)
    with pytest.raises(CarveError):
        verify(clone / REPORT, load_trust(clone, user=False), clone, deep=True)


def test_the_attributes_name_every_file_of_this_repository() -> None:
    lines = (source_root() / ATTRIBUTES).read_text().splitlines()
    assert [line for line in lines if not line.startswith("#")] == ["* -text"]


def test_a_new_workspace_has_them_and_keeps_its_own(tmp_path: Path) -> None:
    made = make_workspace(tmp_path / "new")
    assert (made / ATTRIBUTES).read_bytes() == (source_root() / ATTRIBUTES).read_bytes()
    (made / ATTRIBUTES).write_text("*.json -text\n")
    make_workspace(made)
    assert (made / ATTRIBUTES).read_text() == "*.json -text\n"
