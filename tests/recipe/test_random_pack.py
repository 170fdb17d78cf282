"""The random pack: same bytes for the same arguments, sane activations, and a configuration that tells the truth."""

import json
from pathlib import Path

import numpy as np
import pytest
from carve_kernels.exl3 import linear, pack_format
from carve_kernels.exl3.codebook import Codebook
from safetensors.numpy import load_file

from recipe.mini import random_pack
from runner.errors import StateError


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return random_pack.generate(tmp_path_factory.mktemp("packs") / "pack", seed=3)


def _tensors(folder: Path) -> dict[str, np.ndarray]:
    return {name: array for file in sorted(folder.glob("*.safetensors")) for name, array in load_file(file).items()}


def test_same_arguments_same_bytes(pack: Path, tmp_path: Path) -> None:
    again = random_pack.generate(tmp_path / "again", seed=3)
    other = random_pack.generate(tmp_path / "other", seed=4)
    names = sorted(file.name for file in pack.iterdir())
    assert names == sorted(file.name for file in again.iterdir())
    assert all((pack / name).read_bytes() == (again / name).read_bytes() for name in names)
    assert (pack / "model-00003-of-00003.safetensors").read_bytes() != (
        other / "model-00003-of-00003.safetensors"
    ).read_bytes()


def test_configuration_says_what_the_headers_say(pack: Path) -> None:
    tensors = _tensors(pack)
    storage = json.loads((pack / "config.json").read_text())["quantization_config"]["tensor_storage"]
    found = {module: pack_format.from_tensors(module, tensors).bits for module in pack_format.modules(tensors)}
    assert found == {module: entry["bits_per_weight"] for module, entry in storage.items()}
    assert set(found.values()) == {2, 3, 4}
    index = json.loads((pack / "model.safetensors.index.json").read_text())
    assert set(index["weight_map"]) == set(tensors)


def test_activations_keep_unit_size(pack: Path) -> None:
    tensors = _tensors(pack)
    x = np.random.default_rng(0).standard_normal((4, 256)).astype(np.float32)
    for module in ("model.layers.0.mlp.up_proj", "model.layers.1.mlp.experts.5.up_proj"):
        assert 0.8 < linear.forward(x, pack_format.from_tensors(module, tensors)).std() < 1.3


@pytest.mark.parametrize("book", list(Codebook))
def test_any_codebook(book: Codebook, tmp_path: Path) -> None:
    tensors = _tensors(random_pack.generate(tmp_path / "pack", book=book, experts=4, expert_bits=((1, 8),)))
    module = pack_format.from_tensors("model.layers.1.mlp.experts.0.down_proj", tensors)
    assert (module.codebook, module.bits) == (book, 8)


def test_refuses_a_taken_name(tmp_path: Path) -> None:
    taken = tmp_path / "pack"
    taken.mkdir()
    with pytest.raises(StateError, match="exists already"):
        random_pack.generate(taken)
