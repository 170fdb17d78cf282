"""What the file system refuses reaches a person in words, from every command and every step of a recipe."""

from __future__ import annotations

import errno
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors import SafetensorError

from recipe import bake, overlay, pack_write, patch
from recipe.disk import command, refusal, telling
from recipe.mini import dequantise, donors, random_pack
from recipe.product import Job
from runner.errors import CarveError, InputError, StateError
from runner.model.order.bake import Bake, Rate
from runner.model.order.overlay import Generated
from runner.paths import source_root
from tests.recipe.overlays import contents, job_of, source_pack

COMMANDS = {
    "patch_apply": ("apply", "FILE", "vllm-aux-streams"),
    "image.render": ("orders/mini-patch.yaml", "FOLDER", "OUT"),
    "mini.random_pack": ("FILE/pack",),
    "mini.bake": ("FILE", "OUT"),
    "mini.dequantise": ("FILE", "OUT"),
}
"""Each with an argument that is a file where a folder belongs, or the other way round."""


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_says_what_stands_in_the_way(name: str, tmp_path: Path) -> None:
    (tmp_path / "FILE").write_text("a file")
    (tmp_path / "FOLDER").mkdir()
    places = ("FILE", "FILE/pack", "FOLDER", "OUT")
    words = [str(tmp_path / word) if word in places else word for word in COMMANDS[name]]
    argv = [sys.executable, "-m", f"recipe.{name}", *words]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=source_root(), check=False)
    assert done.returncode in (2, 3) and "Traceback" not in done.stderr, done.stderr
    assert str(tmp_path) in done.stderr
    assert not (tmp_path / "OUT").exists()


def test_an_error_becomes_an_exit_code_and_words(capsys: pytest.CaptureFixture[str]) -> None:
    def failing(error: Exception) -> Callable[[], int]:
        def main() -> int:
            raise error

        return main

    full = OSError(errno.ENOSPC, "No space left on device", "/big/file")
    assert command(failing(full)) == 2
    assert command(failing(InputError("wrong", found="\x1b[2J"))) == 3
    said = capsys.readouterr().err
    assert "/big/file" in said and "No space left" in said and "next step" in said
    assert "\x1b" not in said
    assert command(lambda: None) == 0 and command(lambda: 1) == 1
    with pytest.raises(ZeroDivisionError):
        command(failing(ZeroDivisionError()))


def test_a_refusal_names_both_files_of_a_rename() -> None:
    told = refusal(
        "it cannot be written", "/there", OSError(errno.EXDEV, "Invalid cross-device link", "/a", None, "/b")
    )
    assert told.where == "/a → /b" and told.next_step
    assert refusal("it cannot be written", "/there", OSError(errno.ENOSPC, "No space left")).where == "/there"


@pytest.mark.parametrize("step", [overlay.make, bake.make, patch.make, overlay.estimate, bake.estimate, patch.estimate])
def test_every_step_is_told(step: Callable[[Job], object], tmp_path: Path) -> None:
    """A standing pack below a plain file: nothing can be looked up there."""
    assert step.__wrapped__  # type: ignore[attr-defined]  # functools.wraps leaves it on what `telling` made
    told = telling("it cannot be done")(lambda job: (job.product / "x").read_bytes())
    job = job_of(tmp_path, tmp_path, Bake(modules=("*",), rates=(Rate(modules="*", bits=2),)))
    with pytest.raises(StateError, match="it cannot be done") as caught:
        told(job)
    assert caught.value.where == str(job.product / "x")


def test_a_weight_file_that_finds_no_room_leaves_no_draft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_tensors: object, file: Path, _metadata: object) -> None:
        file.write_bytes(b"half")
        raise SafetensorError("I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(pack_write, "save_file", full)
    with pytest.raises(StateError, match="could not be written") as caught:
        pack_write.write_shard(tmp_path / "model.safetensors", {})
    assert "No space left" in caught.value.found and caught.value.next_step
    assert list(tmp_path.iterdir()) == []


def generators(folder: Path) -> dict[str, Callable[[Path], object]]:
    source = source_pack(folder / "source", vocabulary=300, layers=2)
    wanted = Generated(tool="rescaled-experts", layers=(1,))
    return {
        "random-pack": lambda out: random_pack.generate(out, layers=1, hidden=128, intermediate=128, experts=2, topk=1),
        "donor": lambda out: donors.rescaled_experts(source, out, wanted),
        "checkpoint": lambda out: dequantise.dequantise(source, out),
    }


@pytest.mark.parametrize("name", ["random-pack", "donor", "checkpoint"])
def test_a_generator_takes_over_its_own_and_leaves_what_is_not(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = generators(tmp_path)[name]
    make(tmp_path / "whole")
    out, beside = tmp_path / "made/out", tmp_path / "made/.out.partial"
    beside.mkdir(parents=True)
    (beside / "thesis.txt").write_text("the only copy")
    with pytest.raises(CarveError, match="something else lies"):
        make(out)
    assert (beside / "thesis.txt").read_text() == "the only copy"
    (beside / "thesis.txt").rename(tmp_path / "thesis.txt")
    killed = beside / "whole"
    killed.mkdir()
    (beside / ".carve-building").touch()
    (killed / "model.safetensors").write_bytes(b"half of it")
    make(out)
    assert contents(out) == contents(tmp_path / "whole")
    assert [path.name for path in out.parent.iterdir()] == ["out"]

    def stop(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(pack_write, "write_json", stop)
    with pytest.raises(OSError, match="No space left"):
        make(tmp_path / "made/second")
    assert [path.name for path in out.parent.iterdir()] == ["out"], "what fails leaves nothing"
