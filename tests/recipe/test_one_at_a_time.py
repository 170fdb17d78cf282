"""Two processes at one product: one makes it, the other is told, and nothing of either is left in the other's way."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from recipe import whole_folder
from runner.errors import StateError
from runner.paths import source_root
from tests.recipe.overlays import contents
from tests.recipe.works import WORKS


@contextmanager
def held(name: str, product: Path) -> Iterator[None]:
    """As another process has it that is at this work."""
    if name != "patch-in-place":
        with whole_folder.building(product) as partial:
            (partial / "model.safetensors").write_bytes(b"of the other")
            yield
            (partial / "model.safetensors").unlink()
        return
    descriptor = os.open(product, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    yield
    os.close(descriptor)


@pytest.mark.parametrize("name", WORKS)
def test_who_comes_second_is_told_and_disturbs_nothing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whole_folder, "PATIENCE_SECONDS", 0.2)
    given = WORKS[name](tmp_path, "small")
    given.prepare(tmp_path / "one")
    before = contents(tmp_path / "one") if name == "patch-in-place" else {}
    with held(name, tmp_path / "one/product"):
        with pytest.raises(StateError, match="another process"):
            given.do(tmp_path / "one")
        monkeypatch.undo()
        if name == "patch-in-place":
            assert contents(tmp_path / "one") == before
        else:
            (partial,) = (tmp_path / "one").glob(".product.partial/*/")
            assert (partial / "model.safetensors").read_bytes() == b"of the other"
    given.do(tmp_path / "one")
    given.prepare(tmp_path / "two")
    given.do(tmp_path / "two")
    assert contents(tmp_path / "one/product") == contents(tmp_path / "two/product")


@pytest.mark.parametrize("name", WORKS)
def test_five_at_once_make_one_whole_product(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.recipe.racing", name, str(tmp_path), "5"]
    done = subprocess.run(command, cwd=source_root(), capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["made"] >= 1 and told["made"] + told["told"] == 5
