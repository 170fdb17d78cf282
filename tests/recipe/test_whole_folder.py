"""Where a product is built: taken over when it is ours, left alone and named when it is not."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from recipe import whole_folder
from runner.errors import StateError
from tests.recipe.overlays import contents
from tests.recipe.works import WORKS

PRODUCTS = [name for name in WORKS if name != "patch-in-place"]


def foreign_folder(place: Path, elsewhere: Path) -> None:
    (place / "whole").mkdir(parents=True)
    (place / "whole/thesis.txt").write_text("the only copy")
    (place / "begun.json").write_text("{}")


def link_to_a_folder(place: Path, elsewhere: Path) -> None:
    foreign_folder(elsewhere, place)
    (elsewhere / whole_folder.MARKER).touch()
    place.symlink_to(elsewhere)


def link_for_a_marker(place: Path, elsewhere: Path) -> None:
    foreign_folder(place, elsewhere)
    elsewhere.write_text("")
    (place / whole_folder.MARKER).symlink_to(elsewhere)


def plain_file(place: Path, elsewhere: Path) -> None:
    place.write_text("notes")


FOREIGN: list[Callable[[Path, Path], None]] = [foreign_folder, link_to_a_folder, link_for_a_marker, plain_file]


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("foreign", FOREIGN)
def test_what_is_not_ours_is_refused_and_left(name: str, foreign: Callable[[Path, Path], None], tmp_path: Path) -> None:
    given = WORKS[name](tmp_path, "small")
    given.prepare(tmp_path / "one")
    (tmp_path / "one").mkdir(exist_ok=True)
    foreign(tmp_path / "one/.product.partial", tmp_path / "elsewhere")
    before = contents(tmp_path / "one") | contents(tmp_path / "elsewhere")
    with pytest.raises(StateError, match="something else lies where the product would be built"):
        given.do(tmp_path / "one")
    now = contents(tmp_path / "one") | contents(tmp_path / "elsewhere")
    assert {name: now[name] for name in before} == before
    assert not (tmp_path / "one/product").exists()


def test_what_a_kill_left_is_taken_over_at_every_stage(tmp_path: Path) -> None:
    product = tmp_path / "product"
    place = tmp_path / ".product.partial"
    place.mkdir()  # killed before the marker
    with pytest.raises(KeyboardInterrupt), whole_folder.building(product) as tree:
        (tree / "half").touch()
        raise KeyboardInterrupt
    assert (place / whole_folder.MARKER).is_file() and (tree / "half").is_file()
    with whole_folder.building(product) as tree:
        assert [path.name for path in whole_folder.fresh(tree).iterdir()] == []
        (tree / "done").touch()
        (tree.parent / "note").touch()
        whole_folder.publish(tree, product)
    assert [path.name for path in tmp_path.iterdir()] == ["product"]
    assert [path.name for path in product.iterdir()] == ["done"]


def test_what_a_kill_after_publishing_left_is_cleared_and_nothing_else(tmp_path: Path) -> None:
    place = tmp_path / ".product.partial"
    place.mkdir()
    (place / "letter.txt").touch()
    whole_folder.tidy(tmp_path / "product")
    assert (place / "letter.txt").is_file(), "no marker: not ours"
    (place / whole_folder.MARKER).touch()
    with whole_folder.alone(place):
        whole_folder.tidy(tmp_path / "product")
        assert (place / "letter.txt").is_file(), "another holds it"
    whole_folder.tidy(tmp_path / "product")
    assert not place.exists()


def test_a_hold_that_a_killed_process_left_behind_is_waited_for(tmp_path: Path) -> None:
    """Between fork and exec a child has all its parent's descriptors, and with them the parent's hold."""
    place = tmp_path / "place"
    place.mkdir()
    descriptor = os.open(place, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    # The child, not this process, has the hold; it ends only once the wait has begun.
    code = "import sys; print(flush=True); sys.stdin.read(1)"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=[descriptor]
    ) as child:
        assert child.stdin and child.stdout
        os.close(descriptor)
        child.stdout.readline()
        with pytest.raises(StateError, match="another process"), whole_folder.alone(place, patience=0):
            pass
        child.stdin.close()
        with whole_folder.alone(place):
            pass


def test_a_link_is_not_emptied(tmp_path: Path) -> None:
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim/file").touch()
    (tmp_path / "place").symlink_to(tmp_path / "victim")
    with pytest.raises(StateError, match="a link stands"):
        whole_folder.fresh(tmp_path / "place")
    assert (tmp_path / "victim/file").is_file()
