"""Folders of any depth: walked, named and removed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from runner.craft.repository import read
from runner.craft.store import git
from runner.trees import DEEPEST, remove, too_deep, walk


def nested(folder: Path, depth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders one in another, made from inside: their path may be longer than one that the kernel takes."""
    with monkeypatch.context() as inside:
        inside.chdir(folder)
        for _ in range(depth):
            Path("deeper").mkdir()
            os.chdir("deeper")
        Path("file").touch()


@pytest.mark.parametrize(("depth", "bounded"), [(3, False), (DEEPEST, False), (DEEPEST + 1, True), (1100, True)])
def test_a_tree_is_walked_to_a_bound_and_removed_beyond_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, depth: int, bounded: bool
) -> None:
    top = tmp_path / "top"
    top.mkdir()
    (top / "link").symlink_to(tmp_path)
    nested(top, depth, monkeypatch)
    found = {path.name for path in walk(top)}
    assert found == {"link", "deeper" if bounded else "file"}
    assert (too_deep(top) is not None) == bounded
    remove(top)
    assert not top.exists()
    remove(top)
    assert tmp_path.is_dir()


def test_hooks_without_end_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git("init", "--quiet", str(tmp_path))
    before = read(tmp_path)
    nested(tmp_path / ".git" / "hooks", 1100, monkeypatch)
    assert read(tmp_path) == before, "what is in reach is as it was; the depth is a finding of its own"
    remove(tmp_path / ".git")
