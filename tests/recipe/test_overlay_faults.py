"""Every planted fault of a finished overlay that verification must find."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from recipe import overlay
from recipe.pack import INDEX, read_pack
from recipe.product import Job
from runner.model.product import PROVENANCE, Product
from tests.recipe.overlays import REWRITTEN, SWAPPED, UNCHANGED, damage_byte, edit


def flip(name: str, folder: Path) -> None:
    entry = read_pack(folder).tensors[name]
    damage_byte(entry.file, entry.stop - 1)


def keep_everything(folder: Path, source: Path) -> None:
    """What the campaign's tool did: the old file stayed, and the index with it."""
    for name in (REWRITTEN, INDEX, "config.json"):
        shutil.copyfile(source / name, folder / name)


FAULTS: dict[str, tuple[Callable[[Path, Path], object], str]] = {
    "nothing was replaced": (keep_everything, "is not the donor's"),
    "a kept tensor": (lambda p, _: flip("model.layers.1.mlp.gate.weight", p), "gate.weight should be unchanged"),
    "an unchanged file": (lambda p, _: damage_byte(p / UNCHANGED, -1), f"{UNCHANGED} should be unchanged"),
    "a donor's tensor": (lambda p, _: flip(f"{SWAPPED}.1.up_proj.trellis", p), "is not the donor's"),
    "a small file": (lambda p, _: (p / "tokenizer.json").write_text("{}"), "tokenizer.json should be unchanged"),
    "a forgotten small file": (lambda p, _: (p / "tokenizer_config.json").unlink(), "tokenizer_config.json"),
    "a stranger": (lambda p, _: (p / "notes.txt").write_text("?"), "notes.txt belongs to nothing"),
    "weights of a stranger, further down": (lambda p, _: nested(p), "extra/model.safetensors belongs to nothing"),
    "configuration": (
        lambda p, _: edit(p / "config.json", lambda c: c.update(hidden_act="gelu")),
        "config.json is not",
    ),
    "index": (
        lambda p, _: edit(p / INDEX, lambda i: i["weight_map"].pop(f"{SWAPPED}.0.up_proj.svh")),
        "index and headers",
    ),
    "no provenance": (lambda p, _: (p / PROVENANCE).unlink(), "provenance.json is missing"),
    "a link out": (lambda p, s: (p / "extra").symlink_to(s / "config.json"), "link leads out"),
    "a tensor too many": (lambda p, _: add_tensor(p), "stranger belongs to nothing"),
}


def nested(folder: Path) -> None:
    (folder / "extra").mkdir()
    save_file({"stranger": np.ones(4, np.float16)}, folder / "extra/model.safetensors")


def add_tensor(folder: Path) -> None:
    tensors = load_file(folder / REWRITTEN) | {"stranger": np.ones(4, np.float16)}
    save_file(tensors, folder / REWRITTEN)
    edit(folder / INDEX, lambda index: index["weight_map"].update(stranger=REWRITTEN))


SMALL = {"a small file", "a forgotten small file", "a stranger", "configuration", "index", "a link out"}
SMALL |= {"weights of a stranger, further down"}
"""Faults that no digest of the product shows."""


@pytest.mark.parametrize("name", FAULTS)
def test_verification_finds_a_planted_fault(
    name: str, packs: tuple[Path, Path], finished: tuple[Job, Product], tmp_path: Path
) -> None:
    damage, words = FAULTS[name]
    folder = Path(shutil.copytree(finished[1].folder, tmp_path / "product"))
    damage(folder, packs[0])
    product = finished[1].model_copy(update={"folder": str(folder)})
    verified = overlay.verify(replace(finished[0], product=folder), product)
    assert any(words in fault for fault in verified.faults), verified.faults
    if name not in SMALL:
        assert verified.digests != product.digests
