"""What lies beside a bake's weights: settings of an unfinished one, the input's small files, and strangers."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recipe import bake, bake_layers
from recipe.mini.random_pack import generate
from runner.errors import StateError
from runner.model.order.bake import Bake, Rate
from tests.recipe.overlays import job_of

RECIPE = Bake(modules=("model.layers.0.self_attn.k_proj",), rates=(Rate(modules="*", bits=2),))


@pytest.fixture(scope="module")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One layer whose attention is plain."""
    shape: dict[str, Any] = {"hidden": 128, "intermediate": 128, "experts": 2, "topk": 1, "vocabulary": 300}
    return generate(tmp_path_factory.mktemp("standing") / "pack", layers=1, **shape)


def stop(*_: object) -> None:
    raise KeyboardInterrupt


def nested(folder: Path) -> None:
    (folder / "extra").mkdir()
    (folder / "extra/more.txt").write_text("a thought")


STRANGERS: dict[str, tuple[Callable[[Path], object], str]] = {
    "a file": (lambda p: (p / "modeling.py").write_text("import os"), "modeling.py belongs to nothing"),
    "a file further down": (nested, "extra/more.txt belongs to nothing"),
    "a link": (lambda p: (p / "other").symlink_to("config.json"), "other belongs to nothing"),
    "another tokenizer": (lambda p: (p / "tokenizer.json").write_text("{}"), "tokenizer.json should be unchanged"),
    "a lost template": (lambda p: (p / ".gitattributes").unlink(), ".gitattributes was not copied"),
}


@pytest.mark.parametrize("name", STRANGERS)
def test_a_file_that_no_bake_writes_is_a_fault(standing: Path, tmp_path: Path, name: str) -> None:
    base = Path(shutil.copytree(standing, tmp_path / "base"))
    (base / ".gitattributes").write_text("*.safetensors filter=lfs\n")
    job = job_of(tmp_path, base, RECIPE)
    product = bake.make(job)
    assert bake.verify(job, product).faults == ()
    change, message = STRANGERS[name]
    change(job.product)
    (found,) = bake.verify(job, product).faults
    assert message in found


def test_a_small_file_that_changes_between_two_attempts_is_refused(
    standing: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, name in enumerate(("config.json", "tokenizer_config.json", "README.md")):
        base = Path(shutil.copytree(standing, tmp_path / f"base{number}"))
        job = job_of(tmp_path / str(number), base, RECIPE)
        with monkeypatch.context() as context:
            context.setattr(bake_layers, "errors_of", stop)
            with pytest.raises(KeyboardInterrupt):
                bake.make(job)
        (base / name).write_text("{}" if name != "config.json" else (base / name).read_text() + "\n")
        with pytest.raises(StateError) as caught:
            bake.make(job)
        assert caught.value.found == "changed: small files"


def test_settings_are_there_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed while they are written: the next attempt begins anew instead of stumbling over half a file."""
    identity = {"arguments": "a" * 100_000}
    for call in ("write", "fsync", "replace"):
        with monkeypatch.context() as context:
            context.setattr(os if call != "replace" else Path, call if call != "write" else "fdopen", stop)
            with pytest.raises(KeyboardInterrupt):
                bake_layers.begin(tmp_path / call, identity, restart=False)
        assert bake_layers.begin(tmp_path / call, identity, restart=False) == tmp_path / call
        (settings,) = (tmp_path / call).iterdir()
        assert json.loads(settings.read_bytes()) == identity
