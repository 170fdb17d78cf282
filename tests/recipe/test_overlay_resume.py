"""An overlay that was broken off and is gone on with: the same bytes, or a refusal that says what changed since."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from recipe import overlay, pack_write
from recipe.overlay import donor
from recipe.overlay.make import BEGUN
from recipe.pack import read_pack
from recipe.product import Job
from runner.errors import StateError
from runner.model.order import Overlay
from runner.model.order.overlay import PackSource
from tests.recipe.overlays import SWAPPED, contents, damage_byte, donor_pack, job_of, recipe_of, source_pack


@pytest.fixture(scope="module")
def packs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("packs")
    return source_pack(folder / "source"), donor_pack(folder / "donor")


@pytest.fixture
def job(packs: tuple[Path, Path], tmp_path: Path) -> Job:
    """Source, donor and product in one store."""
    source, donor = (Path(shutil.copytree(pack, tmp_path / pack.name)) for pack in packs)
    return job_of(tmp_path, source, recipe_of(donor))


def broken_off(job: Job, monkeypatch: pytest.MonkeyPatch) -> Path:
    """After every file of weights was written; the folder with the notes."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as context, pytest.raises(KeyboardInterrupt):
        context.setattr(pack_write, "write_index", stop)
        overlay.make(job)
    return job.product.with_name(f".{job.product.name}.partial")


@pytest.mark.parametrize("unchanged", ["copy", "link"])
def test_it_goes_on_however_files_come_over(unchanged: str, job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(job.recipe, Overlay)
    job = replace(job, recipe=job.recipe.model_copy(update={"unchanged": unchanged, "store": str(job.root)}))
    broken_off(job, monkeypatch)
    assert overlay.verify(job, overlay.make(job)).faults == ()


def shortened(place: Path) -> None:
    file = next((place / "whole").glob("*.safetensors"))
    file.write_bytes(file.read_bytes()[:-3])


def changed(place: Path) -> None:
    file = next((place / "whole").glob("*.safetensors"))
    damage_byte(file, file.stat().st_size - 5)


NOTES: dict[str, Callable[[Path], object]] = {
    "a finished file is shorter": shortened,
    "a finished file has other bytes": changed,
    "a note is cut": lambda place: next(place.glob("done-*")).write_text("{"),
    "a note is something else": lambda place: next(place.glob("done-*")).write_text('{"how": 1}'),
}


@pytest.mark.parametrize("case", NOTES)
def test_what_does_not_lie_there_as_it_was_left_is_made_again(
    case: str, job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = replace(job, product=tmp_path / "other")
    overlay.make(other)
    NOTES[case](broken_off(job, monkeypatch))
    overlay.make(job)
    assert contents(job.product) == contents(other.product)


def test_a_donor_that_changed_in_between_is_refused(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    broken_off(job, monkeypatch)
    entry = read_pack(job.root / "donor").tensors[f"{SWAPPED}.0.gate_proj.trellis"]
    damage_byte(entry.file, entry.start)
    with pytest.raises(StateError) as caught:
        overlay.make(job)
    assert caught.value.found == "another donor"


@pytest.mark.parametrize("content", [b"{", b"[]", b"\xff"])
def test_nobody_knows_what_was_begun_without_its_notes(
    content: bytes, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    (broken_off(job, monkeypatch) / BEGUN).write_bytes(content)
    with pytest.raises(StateError, match="begun here with other arguments"):
        overlay.make(job)


def generated_job(folder: Path, source: Path) -> Job:
    made = {"generated": {"tool": "rescaled-experts", "layers": [1], "seed": 1}}
    return job_of(
        folder, source, recipe_of(Path("nowhere")).model_copy(update={"donor": PackSource.model_validate(made)})
    )


def planted_whole(place: Path, packs: tuple[Path, Path]) -> None:
    shutil.rmtree(place, ignore_errors=True)
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(packs[0], place)


def planted_bytes(place: Path, packs: tuple[Path, Path]) -> None:
    file = max(place.glob("*.safetensors"))
    damage_byte(file, file.stat().st_size - 1)


def planted_link(place: Path, packs: tuple[Path, Path]) -> None:
    shutil.rmtree(place, ignore_errors=True)
    place.symlink_to(packs[0])


@pytest.mark.parametrize("plant", [planted_whole, planted_bytes, planted_link])
@pytest.mark.parametrize("same_process", [True, False])
def test_a_generated_donor_is_what_its_tool_makes(
    same_process: bool,
    plant: Callable[[Path, tuple[Path, Path]], None],
    packs: tuple[Path, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever lies in its place, from before the work or since an attempt at it."""
    wanted = overlay.make(generated_job(tmp_path / "sound", packs[0]))
    job = generated_job(tmp_path / "planted", packs[0])
    overlay.estimate(job)
    overlay.make(job)
    shutil.rmtree(job.product)
    plant(job.work / "donor", packs)
    if not same_process:
        monkeypatch.setattr(donor, "_MADE", {})
    product = overlay.make(job)
    assert product.digests == wanted.digests and overlay.verify(job, product).faults == ()


def test_a_sound_generated_donor_goes_on(
    packs: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = generated_job(tmp_path, packs[0])
    broken_off(job, monkeypatch)
    monkeypatch.setattr(donor, "_MADE", {})  # another process
    assert overlay.verify(job, overlay.make(job)).faults == ()
