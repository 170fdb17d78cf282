"""Packs whose quantisation block is a file of its own, as exllamav3 writes it: read, compared, baked and overlaid."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from recipe import bake, overlay
from recipe.closure import QUANTISATION
from recipe.configured import CONFIG
from recipe.headers import Fault
from recipe.mini import dequantise
from recipe.pack import Pack, inspect, read_pack
from runner.model.order.bake import Bake, Rate
from tests.recipe.overlays import donor_pack, edit, job_of, recipe_of, source_pack

CODED = "model.layers.0.self_attn.k_proj"
RECIPE = Bake(modules=(CODED,), rates=(Rate(modules="*", bits=2),))
_TORCH = {"I16": "torch.int16", "F16": "torch.float16", "I32": "torch.int32", "F32": "torch.float32"}


def block_of(pack: Pack, *, listed: bool) -> dict[str, Any]:
    """As exllamav3 writes it; ``listed`` with every module's tensors, coded or not."""
    storage: dict[str, Any] = {}
    for name, entry in pack.tensors.items() if listed else ():
        told = {"shape": list(entry.shape), "n_bytes": entry.nbytes, "dtype": _TORCH[entry.dtype]}
        storage.setdefault(name.rpartition(".")[0], {"stored_tensors": {}})["stored_tensors"][name] = told
    for name, module in pack.modules.items():
        storage[name] = storage.get(name, {}) | {"quant_format": "exl3", "bits_per_weight": module.bits}
    bits = sum(one.weights * one.bits for one in pack.modules.values()) / sum(
        one.weights for one in pack.modules.values()
    )
    return {"quant_method": "exl3", "version": "1.4.5", "bits": round(bits, 2), "tensor_storage": storage}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("plain")
    return source_pack(folder / "source", vocabulary=300), donor_pack(folder / "donor", vocabulary=300)


@pytest.fixture(params=["beside the block", "instead of the block", "listing no tensors"])
def standing(plain: tuple[Path, Path], tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    folder = Path(shutil.copytree(plain[0], tmp_path / "standing"))
    block = block_of(read_pack(folder), listed=request.param != "listing no tensors")
    (folder / QUANTISATION).write_text(json.dumps(block))
    if request.param == "instead of the block":
        edit(folder / CONFIG, lambda config: config.pop("quantization_config"))
    assert read_pack(folder).census() == read_pack(plain[0]).census()
    return folder


def test_a_bake_tells_both_places_what_the_tensors_are(standing: Path, tmp_path: Path) -> None:
    job = job_of(tmp_path / "job", standing, RECIPE)
    product = bake.make(job)
    assert bake.verify(job, product).faults == ()
    pack = read_pack(job.product)
    block = json.loads((job.product / QUANTISATION).read_bytes())
    before = json.loads((standing / QUANTISATION).read_bytes())
    listed = any("stored_tensors" in told for told in before["tensor_storage"].values())
    told = block["tensor_storage"].pop(CODED)
    assert (told["quant_format"], told["bits_per_weight"]) == ("exl3", 2)
    if listed:
        assert told["stored_tensors"].keys() == {name for name in pack.tensors if name.startswith(f"{CODED}.")}
        assert told["stored_tensors"][f"{CODED}.trellis"]["dtype"] == "torch.int16"
    before["tensor_storage"].pop(CODED, None)
    assert block["tensor_storage"] == before["tensor_storage"], "what was not coded is told as before"
    assert json.loads((job.product / CONFIG).read_bytes())["quantization_config"]["tensor_storage"].keys() == set(
        pack.modules
    )


def test_an_overlay_tells_both_places_what_the_tensors_are(
    standing: Path, plain: tuple[Path, Path], tmp_path: Path
) -> None:
    job = job_of(tmp_path / "job", standing, recipe_of(plain[1]))
    assert overlay.verify(job, overlay.make(job)).faults == ()
    before, after = (json.loads((pack / QUANTISATION).read_bytes()) for pack in (standing, job.product))
    other = {name for name, told in after["tensor_storage"].items() if told != before["tensor_storage"][name]}
    assert other == {name for name in read_pack(job.product).modules if name.startswith("model.layers.1.mlp.experts.")}
    assert after["bits"] != before["bits"] and after["version"] == "1.4.5"


def test_a_stale_block_in_the_product_is_a_fault(standing: Path, tmp_path: Path) -> None:
    job = job_of(tmp_path / "job", standing, RECIPE)
    product = bake.make(job)
    shutil.copyfile(standing / QUANTISATION, job.product / QUANTISATION)
    assert {fault.fault for fault in inspect(job.product)[1]} == {Fault.CONFIGURATION}
    assert bake.verify(job, product).faults
    edit(job.product / QUANTISATION, dict.clear)
    assert bake.verify(job, product).faults == (f"{QUANTISATION} is not what the tensors and the order make it",)


def test_a_float_checkpoint_has_no_block(standing: Path, tmp_path: Path) -> None:
    folder = dequantise.dequantise(standing, tmp_path / "float")
    assert not (folder / QUANTISATION).exists()
    assert "quantization_config" not in json.loads((folder / CONFIG).read_bytes())
