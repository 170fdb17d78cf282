"""Overlays that are killed, that meet a full disk, and that may not write: nothing half stands, nothing is lost."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from recipe import overlay
from recipe.mini.donors import rescaled_experts
from runner.errors import StateError
from runner.model.order.overlay import Generated
from runner.paths import source_root
from tests.recipe.overlays import contents, donor_pack, job_of, recipe_of, source_pack


@pytest.fixture(scope="module")
def packs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("packs")
    return source_pack(folder / "source"), donor_pack(folder / "donor")


def kill(folder: Path, source: Path, donor: Path, times: int) -> dict[str, int]:
    argv = [sys.executable, "-m", "tests.recipe.killing", *map(str, (folder, source, donor, times, 1))]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=source_root(), check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    told: dict[str, int] = json.loads(done.stdout)
    return told


def test_two_hundred_kills_leave_all_or_nothing(packs: tuple[Path, Path], tmp_path: Path) -> None:
    told = kill(tmp_path, *packs, times=200)
    assert told["killed"] == 200
    assert told["finished"] > 10
    assert told["resumed"] > 5


def test_twenty_kills_on_the_small_model(tmp_path: Path) -> None:
    mini = source_root() / "recipe/mini/pack"
    rescaled_experts(mini, tmp_path / "donor", Generated(tool="rescaled-experts", layers=(1,)))
    assert kill(tmp_path, mini, tmp_path / "donor", times=20)["killed"] == 20


LIMITED = """
import resource, signal, sys
from pathlib import Path
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
from recipe import overlay
from runner.errors import StateError
from tests.recipe.overlays import job_of, recipe_of

folder, source, donor = map(Path, sys.argv[1:4])
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[4]), int(sys.argv[4])))
try:
    overlay.make(job_of(folder, source, recipe_of(donor)))
except StateError as error:
    print(error)
"""


@pytest.mark.parametrize("limit", [0, 5_000, 120_000])
def test_a_disk_that_takes_no_more_is_told_and_the_work_goes_on(
    limit: int, packs: tuple[Path, Path], tmp_path: Path
) -> None:
    """The kernel refuses to write beyond a limit, in the middle of a file, as it does on a full disk."""
    before = [contents(pack) for pack in packs]
    argv = [sys.executable, "-c", LIMITED, *map(str, (tmp_path, *packs, limit))]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=source_root(), check=True)
    assert "File too large" in done.stdout, done.stderr
    assert "a disk with room" in done.stdout or "free the disk" in done.stdout
    job = job_of(tmp_path, packs[0], recipe_of(packs[1]))
    assert not job.product.exists()
    product = overlay.make(job)
    assert overlay.verify(job, product).faults == ()
    assert [contents(pack) for pack in packs] == before


def test_a_disk_without_room_is_refused_before_the_work(
    packs: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1000))
    with pytest.raises(StateError, match="too full"):
        overlay.make(job_of(tmp_path, packs[0], recipe_of(packs[1])))
    assert not list(tmp_path.glob(".product.partial/*.safetensors"))


@pytest.mark.parametrize("place", [Path("/proc/overlay/product"), Path("/sys/kernel/product")], ids=str)
def test_a_place_that_cannot_be_written_to_is_told(place: Path, packs: tuple[Path, Path], tmp_path: Path) -> None:
    before = [contents(pack) for pack in packs]
    job = job_of(tmp_path, packs[0], recipe_of(packs[1]), product=place)
    with pytest.raises(StateError, match="cannot be written") as caught:
        overlay.make(job)
    assert str(place.parent) in caught.value.where
    assert [contents(pack) for pack in packs] == before
