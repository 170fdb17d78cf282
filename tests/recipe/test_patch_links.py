"""Patched files that were links, as stores of packages make them: they are links again once the patch is reverted."""

from __future__ import annotations

from pathlib import Path

import pytest

from recipe import patch_apply
from recipe.patch_set import PatchSet
from tests.recipe.test_patch_apply import Killed, kill_at
from tests.recipe.test_patch_hostile import ADD, patch_of

PRISTINE = b"COUNT = 1\n"
PATCHES = PatchSet((patch_of(PRISTINE, ADD),))


@pytest.fixture(params=["relative", "absolute"])
def linked(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """``site/engine/part.py``, a link into a store beside the site."""
    (tmp_path / "store").mkdir()
    (tmp_path / "site/engine").mkdir(parents=True)
    (tmp_path / "store/part.py").write_bytes(PRISTINE)
    target = Path("../../store/part.py") if request.param == "relative" else tmp_path / "store/part.py"
    (tmp_path / "site/engine/part.py").symlink_to(target)
    return tmp_path / "site/engine/part.py"


def site_of(linked: Path) -> Path:
    return linked.parent.parent


def test_a_link_is_patched_as_a_file_and_reverted_to_the_link(linked: Path) -> None:
    site, stored, target = site_of(linked), site_of(linked).parent / "store/part.py", linked.readlink()
    for _ in range(2):
        assert patch_apply.apply(site, PATCHES, None) == ["engine/part.py"]
        patch_apply.verify(site, PATCHES)
        assert not linked.is_symlink()
        assert stored.read_bytes() == PRISTINE, "what the link leads to is somebody else's"
        assert patch_apply.revert(site, PATCHES) == ["engine/part.py"]
        assert linked.readlink() == target
        assert sorted(path.name for path in site.rglob("*")) == ["engine", "part.py"]


def test_a_link_that_leads_to_other_bytes_by_now_is_not_made_again(linked: Path) -> None:
    site, stored = site_of(linked), site_of(linked).parent / "store/part.py"
    for change in (lambda: stored.write_bytes(b"COUNT = 2\n"), stored.unlink):
        stored.write_bytes(PRISTINE)
        linked.unlink()
        linked.symlink_to(stored)
        patch_apply.apply(site, PATCHES, None)
        change()
        assert patch_apply.revert(site, PATCHES) == ["engine/part.py"]
        assert not linked.is_symlink()
        assert linked.read_bytes() == PRISTINE
        assert sorted(path.name for path in site.rglob("*")) == ["engine", "part.py"]


def test_a_file_that_was_a_link_once_stays_a_file(linked: Path) -> None:
    """Installed anew in between, as a file: the note of an earlier link says nothing of it."""
    site = site_of(linked)
    patch_apply.apply(site, PATCHES, None)
    linked.write_bytes(PRISTINE)
    patch_apply.apply(site, PATCHES, None)
    assert patch_apply.revert(site, PATCHES) == ["engine/part.py"]
    assert not linked.is_symlink()
    assert linked.read_bytes() == PRISTINE


@pytest.mark.parametrize("reverting", [False, True])
def test_killed_at_every_point_the_link_comes_back(
    reverting: bool, linked: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, target, killed = site_of(linked), linked.readlink(), 0
    for point in range(100):
        if reverting:
            patch_apply.apply(site, PATCHES, None)
        with monkeypatch.context() as context:
            reached = kill_at(context, point)
            try:
                patch_apply.revert(site, PATCHES) if reverting else patch_apply.apply(site, PATCHES, None)
            except Killed:
                killed += 1
            done = reached() < point
        assert linked.read_bytes() in (PRISTINE, PATCHES.compose("engine/part.py", PRISTINE))
        patch_apply.revert(site, PATCHES)
        assert linked.readlink() == target
        if done:
            break
    assert killed > 5
    assert sorted(path.name for path in site.rglob("*")) == ["engine", "part.py"]
