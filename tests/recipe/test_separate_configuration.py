"""Packs whose quantisation block is a file of its own, as exllamav3 writes it: read, compared, baked and overlaid."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from recipe import bake, overlay, pack_write
from recipe.blocks import CONFIG, USUAL, Place, blocks_of
from recipe.closure import QUANTISATION
from recipe.configured import anew
from recipe.headers import Fault
from recipe.mini import dequantise
from recipe.pack import Pack, inspect, read_pack
from runner.errors import InputError
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


@pytest.mark.parametrize("where", ["in config.json", "in a file of its own"])
def test_a_coded_head_is_told_in_every_block(where: str, plain: tuple[Path, Path], tmp_path: Path) -> None:
    standing = Path(shutil.copytree(plain[0], tmp_path / "standing"))
    edit(standing / CONFIG, lambda c: c["quantization_config"].update(head_bits=16))
    if where != "in config.json":
        block = json.loads((standing / CONFIG).read_bytes())["quantization_config"]
        (standing / QUANTISATION).write_text(json.dumps(block))
        edit(standing / CONFIG, lambda c: c["quantization_config"].pop("head_bits"))
    headless = read_pack(standing).tensors
    for bits in (1, 16):
        coded = {"trellis": ("I16", (8, 32, 16)), "suh": ("F16", (128,)), "svh": ("F16", (512,)), "mcg": ("I32", (1,))}
        tensors = dict(headless)
        if bits == 1:
            weight = tensors.pop("lm_head.weight")
            for part, (dtype, shape) in coded.items():
                tensors[f"lm_head.{part}"] = replace(weight, name=f"lm_head.{part}", dtype=dtype, shape=shape)
        made = pack_write.configurations(standing, tensors)
        blocks = blocks_of(made)
        assert len(blocks) == 1 + (where != "in config.json")
        assert {block["head_bits"] for block in blocks.values()} == {bits}
        assert len({block["bits"] for block in blocks.values()}) == 1, "one mean of the same modules"


def nest(config: dict[str, Any]) -> None:
    """The language model's configuration one level below, its block with it."""
    outer = ("architectures", "model_type")
    config["text_config"] = {name: config.pop(name) for name in list(config) if name not in outer}


def test_a_block_further_in_is_written_anew(plain: tuple[Path, Path], tmp_path: Path) -> None:
    standing = Path(shutil.copytree(plain[0], tmp_path / "standing"))
    edit(standing / CONFIG, nest)
    inner = Place(CONFIG, ("text_config", "quantization_config"))
    job = job_of(tmp_path / "overlaid", standing, recipe_of(plain[1]))
    assert overlay.verify(job, overlay.make(job)).faults == ()
    pack = read_pack(job.product)
    found = blocks_of({CONFIG: json.loads((job.product / CONFIG).read_bytes())})
    assert found.keys() == {inner}, "where it stood and nowhere else"
    told = {name: value["bits_per_weight"] for name, value in found[inner]["tensor_storage"].items()}
    assert told == {name: module.bits for name, module in pack.modules.items()}
    assert told != {name: module.bits for name, module in read_pack(standing).modules.items()}
    baked = job_of(tmp_path / "baked", standing, RECIPE)
    assert bake.verify(baked, bake.make(baked)).faults == ()
    found = blocks_of({CONFIG: json.loads((baked.product / CONFIG).read_bytes())})
    assert found[USUAL] == found[inner]
    assert CODED in found[inner]["tensor_storage"]


def test_a_bake_of_a_float_checkpoint_leaves_no_other_method_behind(plain: tuple[Path, Path], tmp_path: Path) -> None:
    """Nor does an overlay's order say anything in these places."""
    checkpoint = tmp_path / "checkpoint"
    nested = Path(shutil.copytree(plain[0], tmp_path / "nested"))
    edit(nested / CONFIG, lambda c: c.update(text_config={"quantization_config": c["quantization_config"]}))
    dequantise.dequantise(nested, checkpoint)
    assert blocks_of({CONFIG: json.loads((checkpoint / CONFIG).read_bytes())}) == {}
    edit(checkpoint / CONFIG, lambda c: c.update(compression_config={"quant_method": "compressed-tensors"}))
    made = pack_write.configurations(checkpoint, read_pack(plain[0]).tensors)
    assert blocks_of(made).keys() == {USUAL}
    job = job_of(tmp_path, plain[0], recipe_of(plain[1], configuration={"set": {"compression_config": {"bits": 2}}}))
    with pytest.raises(InputError, match="derived from the headers"):
        overlay.estimate(job)


def drafts_told(bits: object) -> Callable[[dict[str, Any]], object]:
    return lambda config: config["quantization_config"].update(mtp_bits=bits)


def test_an_overlay_of_the_drafts_tells_their_bits(tmp_path: Path) -> None:
    """Coded from 2 to 4 bits before; no module of the product's drafts has more than what the stamp then says."""
    source = source_pack(tmp_path / "source", draft_layers=1, mlp_bits=3)
    donor = donor_pack(tmp_path / "donor", draft_layers=1, expert_bits=((1, 1),))
    layer = "model.layers.3"
    bits = sorted({module.bits for name, module in read_pack(source).modules.items() if name.startswith(f"{layer}.")})
    for wrong in (bits[-1] + 1, bits[0] - 0.5, True, "3"):
        edit(source / CONFIG, drafts_told(wrong))
        assert [fault.what for fault in inspect(source)[1]] == ["configuration and headers disagree on mtp_bits"]
    edit(source / CONFIG, drafts_told(bits[-1]))
    job = job_of(tmp_path, source, recipe_of(donor, what="mtp", layers={layer: layer}))
    assert overlay.verify(job, overlay.make(job)).faults == ()
    block = json.loads((job.product / CONFIG).read_bytes())["quantization_config"]
    now = [module.bits for name, module in read_pack(job.product).modules.items() if name.startswith(f"{layer}.")]
    assert min(now) == 1 and min(now) <= block["mtp_bits"] <= max(now)
    tensors = read_pack(donor).tensors
    config = json.loads((source / CONFIG).read_bytes())
    gone = {name: entry for name, entry in tensors.items() if not (name.startswith(layer) and ".shared_" in name)}
    assert anew(block | {"mtp_bits": 4}, gone, config)["mtp_bits"] == 1, "derived where no module has what it says"
    assert anew(block | {"mtp_bits": 4}, gone, config | {"num_hidden_layers": 4})["mtp_bits"] == 4, "no drafts"
