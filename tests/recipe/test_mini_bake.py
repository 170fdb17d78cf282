"""Bake a checkpoint, take the pack apart again, and account for every error."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from carve_kernels.exl3.codebook import Codebook
from safetensors.numpy import load_file, save_file

from recipe import bake_layers, whole_folder
from recipe.mini import bake, dequantise, random_pack
from recipe.mini.bake import Settings
from recipe.pack import read_pack
from runner.errors import InputError, StateError

SMALL: dict[str, Any] = {"hidden": 128, "intermediate": 128, "experts": 2, "topk": 1, "vocabulary": 300}
SETTINGS = Settings(expert_bits=((2, 3),), mlp_bits=4, codebook=Codebook.MCG, seed=5)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A float32 checkpoint of two layers and a draft layer."""
    folder = tmp_path_factory.mktemp("checkpoint")
    pack = random_pack.generate(folder / "pack", layers=2, draft_layers=1, **SMALL)
    return dequantise.dequantise(pack, folder / "float")


@pytest.fixture(scope="module")
def baked(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("baked") / "pack"
    bake.bake(checkpoint, folder, SETTINGS)
    return folder


def test_every_module_has_the_bits_asked_for(baked: Path) -> None:
    modules = read_pack(baked).modules
    assert modules["model.layers.0.mlp.gate_proj"].bits == 4
    assert modules["model.layers.2.mlp.experts.1.up_proj"].bits == 2
    assert modules["model.layers.2.mlp.experts.1.down_proj"].bits == 3
    assert modules["model.layers.1.mlp.shared_experts.up_proj"].bits == 4
    assert len(modules) == 3 + 2 * 3 * 3
    report = json.loads((baked / bake.REPORT).read_text())
    assert {name: facts["bits"] for name, facts in report["modules"].items()} == {n: m.bits for n, m in modules.items()}


def test_reported_error_is_that_of_the_weights(checkpoint: Path, baked: Path) -> None:
    before = load_file(checkpoint / "model.safetensors")
    after = dequantise.weights(read_pack(baked))
    assert set(before) == set(after)
    for name, facts in json.loads((baked / bake.REPORT).read_text())["modules"].items():
        weight, restored = before[f"{name}.weight"], after[f"{name}.weight"]
        error = ((restored - weight) ** 2).sum() / (weight**2).sum()
        assert facts["relative_error"] == pytest.approx(error, rel=1e-3)
        assert error < 1.2 * {2: 0.069, 3: 0.0177, 4: 0.0047}[facts["bits"]]
    for name, weight in before.items():
        if name.removesuffix(".weight") not in read_pack(baked).modules:
            assert np.allclose(after[name], weight, rtol=1e-3, atol=1e-6)


def test_nothing_is_left_beside_the_pack(baked: Path) -> None:
    assert [path.name for path in baked.parent.iterdir()] == ["pack"]
    assert not list(baked.glob(".*"))


def test_interrupted_bake_goes_on_and_gives_the_same_bytes(
    checkpoint: Path, baked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = bake_layers._code, iter(range(3))

    def stop_at_third(*arguments: Any) -> Any:
        if next(calls) == 2:
            raise KeyboardInterrupt
        return real(*arguments)

    monkeypatch.setattr(bake_layers, "_code", stop_at_third)
    with pytest.raises(KeyboardInterrupt):
        bake.bake(checkpoint, tmp_path / "pack", SETTINGS)
    assert not (tmp_path / "pack").exists()
    finished = {file.name: file.stat().st_mtime_ns for file in (tmp_path / ".pack.partial/whole").glob("*.safetensors")}
    assert len(finished) == 2
    monkeypatch.undo()
    bake.bake(checkpoint, tmp_path / "pack", SETTINGS)
    assert all((tmp_path / "pack" / name).stat().st_mtime_ns == time for name, time in finished.items())
    assert sorted(f.name for f in (tmp_path / "pack").iterdir()) == sorted(f.name for f in baked.iterdir())
    for file in baked.iterdir():
        assert (tmp_path / "pack" / file.name).read_bytes() == file.read_bytes()


def test_other_settings_do_not_resume(checkpoint: Path, tmp_path: Path) -> None:
    partial = tmp_path / ".pack.partial/whole"
    partial.mkdir(parents=True)
    (partial.parent / whole_folder.MARKER).touch()
    (partial / "model-00001-of-00004.safetensors").write_bytes(b"left over")
    bake.bake(checkpoint, tmp_path / "pack", Settings(expert_bits=((1, 1),), mlp_bits=1))
    assert set(read_pack(tmp_path / "pack").census()) == {1}


def test_hessians_lower_the_output_error(checkpoint: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    inputs = rng.standard_normal((512, 128)) * np.exp(-np.arange(128) / 20)
    name = "model.layers.1.mlp.experts.0.up_proj"
    report = bake.bake(checkpoint, tmp_path / "pack", SETTINGS, {name: inputs.T @ inputs / 512})
    assert report["modules"][name]["output_error"] < 0.5 * report["modules"][name]["relative_error"]
    assert report["calibration"] is not None


def test_refuses_what_it_cannot_do_well(checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(StateError, match="exists already"):
        bake.bake(checkpoint, tmp_path / "taken", Settings(expert_bits=((1, 1),), mlp_bits=1))
    tensors = load_file(checkpoint / "model.safetensors")
    poor = tmp_path / "poor"
    poor.mkdir()
    (poor / "config.json").write_bytes((checkpoint / "config.json").read_bytes())
    save_file({n: t for n, t in tensors.items() if "layers.1.mlp.experts.1.up" not in n}, poor / "model.safetensors")
    with pytest.raises(InputError, match="lacks weights"):
        bake.bake(poor, tmp_path / "out", SETTINGS)
    tensors["model.norm.weight"][3] = 1e6
    save_file(tensors, poor / "model.safetensors")
    with pytest.raises(InputError, match="value out of range"):
        bake.bake(poor, tmp_path / "out", SETTINGS)


@pytest.mark.parametrize(("text", "bits"), [("2", ((2, 2),)), ("2,3", ((2, 2), (3, 3))), ("2/3,4", ((2, 3), (4, 4)))])
def test_bits_on_the_command_line(text: str, bits: tuple[tuple[int, int], ...]) -> None:
    assert bake.expert_bits(text) == bits
