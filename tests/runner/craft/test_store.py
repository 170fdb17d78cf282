"""The store works on its own repository, whatever the caller's environment or the checkout's own git says."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.craft.store import Store, git


def repository(path: Path, text: str) -> Path:
    git("init", "--quiet", "--initial-branch=main", str(path))
    (path / "kernel.cpp").write_text(text)
    git("add", "--all", folder=path)
    git("commit", "--quiet", "-m", text, folder=path)
    return path


def state(path: Path) -> tuple[bytes, bytes, str]:
    refs, status = git("for-each-ref", folder=path), git("status", "--porcelain", folder=path)
    return refs, status, (path / "kernel.cpp").read_text()


def test_a_repository_that_the_caller_names_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As inside a hook, where git names the repository that runs it."""
    checkout, victim = repository(tmp_path / "checkout", "ours"), repository(tmp_path / "victim", "theirs")
    before = state(victim)
    for name, value in {
        "GIT_DIR": victim / ".git",
        "GIT_WORK_TREE": victim,
        "GIT_INDEX_FILE": victim / ".git" / "index",
        "GIT_OBJECT_DIRECTORY": victim / ".git" / "objects",
        "GIT_ALTERNATE_OBJECT_DIRECTORIES": victim / ".git" / "objects",
        "GIT_CONFIG_COUNT": 1,
        "GIT_CONFIG_KEY_0": "core.bare",
        "GIT_CONFIG_VALUE_0": "true",
    }.items():
        monkeypatch.setenv(name, str(value))
    store, commit = Store.of(tmp_path / "store.git", checkout)
    store.clone(commit, tmp_path / "clone")
    assert (tmp_path / "clone" / "kernel.cpp").read_text() == "ours"
    (tmp_path / "clone" / "kernel.cpp").write_text("faster")
    frozen = store.freeze(tmp_path / "clone", commit, tmp_path / "index", "attempt-1")
    assert store.files(commit, frozen, ["kernel.cpp"]) == {"kernel.cpp": b"faster"}
    monkeypatch.undo()
    assert state(victim) == before


def test_a_commit_that_stands_in_for_another_does_not_count(tmp_path: Path) -> None:
    """``git replace`` and borrowed objects in a checkout change what is shown there, not what is taken."""
    checkout = repository(tmp_path / "checkout", "seen")
    head = git("rev-parse", "HEAD", folder=checkout).decode().strip()
    other = repository(tmp_path / "other", "softer")
    (checkout / ".git" / "objects" / "info" / "alternates").write_text(f"{other / '.git' / 'objects'}\n")
    softer = git("rev-parse", "HEAD", folder=other).decode().strip()
    git("replace", head, softer, folder=checkout)
    assert git("show", "HEAD:kernel.cpp", folder=checkout) == b"softer"
    store, commit = Store.of(tmp_path / "store.git", checkout)
    store.clone(commit, tmp_path / "clone")
    assert (commit, (tmp_path / "clone" / "kernel.cpp").read_text()) == (head, "seen")
