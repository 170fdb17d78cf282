"""Work that meets a full disk or a folder that it may not write to: told, nothing half stands, nothing is lost."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from recipe import overlay, pack_write
from runner.errors import StateError
from runner.paths import source_root
from tests.recipe.overlays import contents, donor_pack, job_of, recipe_of, source_pack
from tests.recipe.works import WORKS

_NAMESPACE = ["unshare", "--map-root-user", "--mount"]
SAID = ("No space left on device", "Read-only file system", "File too large")


def own_mounts() -> list[str]:
    """What gives a command its own mounts; nothing where that is not allowed: then files are limited instead."""
    allowed = subprocess.run([*_NAMESPACE, "true"], capture_output=True, check=False).returncode == 0
    return _NAMESPACE if allowed else []


@pytest.mark.parametrize("name", WORKS)
def test_a_full_or_read_only_disk_is_told_and_the_work_goes_on(name: str, tmp_path: Path) -> None:
    fractions = ["0", "0.4", "0.8", "ro"]
    argv = [*own_mounts(), sys.executable, "-m", "tests.recipe.starving", name, str(tmp_path), *fractions]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=source_root(), check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    told: list[str] = json.loads(done.stdout)
    assert len(told) == len(fractions)
    for one in told:
        assert any(words in one for words in SAID) and "writ" in one and "()" not in one


@pytest.fixture(scope="module")
def packs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("packs")
    return source_pack(folder / "source"), donor_pack(folder / "donor")


def test_a_disk_without_room_is_refused_before_the_work(
    packs: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1000))
    with pytest.raises(StateError, match="too full"):
        overlay.make(job_of(tmp_path, packs[0], recipe_of(packs[1])))
    assert not list(tmp_path.glob(".product.partial/**/*.safetensors"))


def test_the_room_that_is_asked_for_is_what_is_written(
    packs: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not the replaced tensors too, and after an interruption not what lies there already."""
    wanted = recipe_of(packs[1])
    reference = job_of(tmp_path / "reference", packs[0], wanted)
    overlay.make(reference)
    size = sum(file.stat().st_size for file in reference.product.glob("*.safetensors"))
    usage = shutil.disk_usage(tmp_path)
    free = [size]
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=free[0]))

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    job = job_of(tmp_path / "job", packs[0], wanted)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(pack_write, "copy_small_files", stop)
        overlay.make(job)
    free[0] = 1000
    overlay.make(job)
    assert contents(job.product) == contents(reference.product)
    free[0] = size // 2
    with pytest.raises(StateError, match="too full"):
        overlay.make(job_of(tmp_path / "other", packs[0], wanted))


@pytest.mark.parametrize("place", [Path("/proc/overlay/product"), Path("/sys/kernel/product")], ids=str)
def test_a_place_that_cannot_be_written_to_is_told(place: Path, packs: tuple[Path, Path], tmp_path: Path) -> None:
    before = [contents(pack) for pack in packs]
    job = job_of(tmp_path, packs[0], recipe_of(packs[1]), product=place)
    with pytest.raises(StateError, match="cannot be written") as caught:
        overlay.make(job)
    assert str(place.parent) in caught.value.where
    assert [contents(pack) for pack in packs] == before
