"""Packs that lie or are broken in their own words: every fault is named, and nothing else is ever raised."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from recipe import bake
from recipe.closure import QUANTISATION
from recipe.headers import Fault, PackError, read_header
from recipe.mini.random_pack import generate
from recipe.pack import INDEX, inspect, read_pack
from recipe.product import Job
from runner.errors import CarveError, InputError
from runner.model.order.bake import Bake, Rate
from tests.recipe.overlays import SHAPE, donor_pack, source_pack

SHARD = "model-00002-of-00004.safetensors"
JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.text(max_size=4),
    st.sampled_from([-1, 1.5, 10**40, float("nan"), float("inf"), [], {}, [[]], {"a": None}, ["F16"], "\udcff"]),
)


def put(file: Path, text: str) -> None:
    """Write JSON where this file has it: behind the length in a weight file, with the payload after it."""
    encoded = text.encode(errors="surrogateescape")
    if file.suffix == ".safetensors":
        old = file.read_bytes()
        payload = old[8 + int.from_bytes(old[:8], "little") :]
        encoded = len(encoded).to_bytes(8, "little") + encoded + payload
    file.unlink()
    file.write_bytes(encoded)


def words(file: Path) -> Any:
    content = file.read_bytes()
    if file.suffix == ".safetensors":
        content = content[8 : 8 + int.from_bytes(content[:8], "little")]
    return json.loads(content)


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths of every node."""
    keys: Any = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    return [at, *(place for key in keys for place in places(value[key], (*at, key)))]


def replaced(value: Any, at: tuple[Any, ...], new: Any) -> Any:
    if not at:
        return new
    parent = value
    for key in at[:-1]:
        parent = parent[key]
    parent[at[-1]] = new
    return value


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sound pack with both forms of a quantisation block."""
    folder = source_pack(tmp_path_factory.mktemp("sound") / "pack")
    pack = read_pack(folder)
    stored = {
        name: {"quant_format": "exl3", "bits_per_weight": module.bits}
        | {"stored_tensors": {f"{name}.trellis": {"shape": list(pack.tensors[f"{name}.trellis"].shape)}}}
        for name, module in pack.modules.items()
    }
    (folder / QUANTISATION).write_text(json.dumps({"quant_method": "exl3", "bits": 2.5, "tensor_storage": stored}))
    return folder


@pytest.mark.parametrize("file", ["config.json", QUANTISATION, INDEX, SHARD])
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_value_in_any_place_is_a_fault_or_nothing(
    file: str, sound: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("hostile") / "pack"
    shutil.copytree(sound, folder, copy_function=os.link)
    value = words(folder / file)
    every = places(value)
    at = data.draw(st.one_of(st.sampled_from([place for place in every if len(place) < 3]), st.sampled_from(every)))
    put(folder / file, json.dumps(replaced(value, at, data.draw(JUNK))))
    pack, faults = inspect(folder)
    assert all(isinstance(fault, PackError) and str(fault) for fault in faults)
    if not faults:
        assert read_pack(folder).header_digest() == pack.header_digest()


@pytest.mark.parametrize("file", ["config.json", QUANTISATION, INDEX, SHARD])
@pytest.mark.parametrize("text", ["[" * 100_000, '{"a": ' * 100_000, "", "\x00", "9" * 5000, '{"bits": NaN}', "\udcff"])
def test_text_that_no_reader_survives_is_a_fault(file: str, text: str, sound: Path, tmp_path: Path) -> None:
    folder = tmp_path / "pack"
    shutil.copytree(sound, folder, copy_function=os.link)
    put(folder / file, text)
    assert all(isinstance(fault, PackError) for fault in inspect(folder)[1])
    if file != QUANTISATION:
        with pytest.raises(CarveError):
            read_pack(folder)


def test_bits_that_are_no_number_are_told(sound: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(sound, tmp_path / "pack"))
    value = words(folder / QUANTISATION) | {"bits": float("nan")}
    put(folder / QUANTISATION, json.dumps(value))
    with pytest.raises(PackError, match="disagree on the bits"):
        read_pack(folder)


def circle(folder: Path) -> None:
    (folder / "one").symlink_to("two")
    (folder / "two").symlink_to("one")


STRANGE = {
    "a circle of links": (circle, "link leads out of the pack or nowhere"),
    "a link to itself": (lambda folder: (folder / "self").symlink_to("self"), "link leads out"),
    "a link to the root": (lambda folder: (folder / "root").symlink_to("/"), "link leads out"),
    "a name that is no text": (lambda folder: (folder / os.fsdecode(b"\xff.txt")).touch(), "no UTF-8"),
    "a pipe for weights": (lambda folder: os.mkfifo(folder / "pipe.safetensors"), "file is missing"),
    "a folder for weights": (lambda folder: (folder / "folder.safetensors").mkdir(), "file is missing"),
    "an index of missing files": (
        lambda folder: put(folder / INDEX, '{"weight_map": {"a": "../b.safetensors", "c": "/d.safetensors"}}'),
        "file is missing",
    ),
}


@pytest.mark.parametrize("case", STRANGE)
def test_strange_files_are_named(case: str, sound: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(sound, tmp_path / "päck 包"))
    make, message = STRANGE[case]
    make(folder)
    assert any(message in fault.what for fault in inspect(folder)[1])


def test_a_file_that_shrinks_after_its_header_was_read_is_truncated(sound: Path, tmp_path: Path) -> None:
    file = Path(shutil.copy(sound / SHARD, tmp_path / SHARD))
    entry = max(read_header(file).entries, key=lambda entry: entry.stop)
    os.truncate(file, entry.stop - 2)
    with pytest.raises(PackError, match="ends inside a tensor") as caught:
        entry.read()
    assert caught.value.fault is Fault.TRUNCATED


def test_two_shard_sets_in_a_source_of_plain_weights_are_refused(tmp_path: Path) -> None:
    standing = generate(tmp_path / "standing", **(SHAPE | {"layers": 1, "vocabulary": 300}))
    source = donor_pack(tmp_path / "source", layers=1, vocabulary=300)
    for file in sorted(source.glob("*.safetensors")):
        shutil.copy(file, source / f"old-{file.name}")
    recipe = Bake(source="source", modules=("*.k_proj",), rates=(Rate(modules="*", bits=3),))
    with pytest.raises(InputError, match="stand in an indexed file too"):
        bake.make(Job(recipe, standing, tmp_path, tmp_path / "product", tmp_path / "work"))


K = "model.layers.0.self_attn.k_proj"
WEIGHTS: dict[str, tuple[np.ndarray, str]] = {
    "one NaN": (np.where(np.arange(128) == 5, np.nan, np.ones((128, 128))).astype(np.float16), "cannot be quantised"),
    "infinity": (np.full((128, 128), np.inf, np.float16), "cannot be quantised"),
    "too large for float16": (np.full((128, 128), 1e30, np.float32), "cannot be quantised"),
    "another type": (np.ones((128, 128)), "cannot be coded"),
    "whole numbers": (np.ones((128, 128), np.int32), "cannot be coded"),
    "no multiple of the tile": (np.ones((100, 128), np.float16), "cannot be coded"),
    "nothing": (np.ones((0, 128), np.float16), "cannot be coded"),
    "a vector": (np.ones(128, np.float16), "cannot be coded"),
}


@pytest.mark.parametrize("case", WEIGHTS)
def test_weights_that_cannot_be_coded_are_named(case: str, tmp_path: Path) -> None:
    standing = generate(tmp_path / "standing", **(SHAPE | {"layers": 1, "vocabulary": 300}))
    weight, message = WEIGHTS[case]
    (tmp_path / "source").mkdir()
    save_file({f"{K}.weight": weight}, tmp_path / "source/model.safetensors")
    recipe = Bake(source="source", modules=(K,), rates=(Rate(modules="*", bits=2),))
    with pytest.raises(InputError, match=message) as caught:
        bake.make(Job(recipe, standing, tmp_path, tmp_path / "product", tmp_path / "work"))
    assert K in caught.value.where
    assert not (tmp_path / "product").exists()
