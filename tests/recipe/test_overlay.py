"""Overlays on small packs: what goes, what comes, what stays, and every planted fault that verification must find."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from carve_kernels.exl3.codebook import Codebook
from safetensors.numpy import load_file, save_file

from recipe import overlay
from recipe.headers import PackError
from recipe.mini.donors import float8_experts
from recipe.pack import INDEX, read_pack
from recipe.product import Job
from runner.errors import InputError, StateError
from runner.model.order.overlay import Generated, Overlay, PackSource
from runner.model.product import PROVENANCE, Product
from tests.recipe.overlays import (
    REWRITTEN,
    SWAPPED,
    UNCHANGED,
    contents,
    damage_byte,
    donor_pack,
    edit,
    job_of,
    recipe_of,
    source_pack,
)


def test_experts_are_the_donors_and_everything_else_is_as_it_was(
    packs: tuple[Path, Path], finished: tuple[Job, Product]
) -> None:
    source, donor = packs
    job, product = finished
    mine, before, theirs = (load_all(folder) for folder in (Path(product.folder), source, donor))
    assert mine.keys() == before.keys()
    for name, array in mine.items():
        origin = theirs if name.startswith(SWAPPED) else before
        assert array.dtype == origin[name].dtype and np.array_equal(array, origin[name])
    made = read_pack(job.product)
    assert {made.modules[f"{SWAPPED}.0.{part}"].bits for part in ("gate_proj", "up_proj", "down_proj")} == {2}
    index = json.loads((job.product / INDEX).read_text())
    assert index["metadata"]["total_size"] == sum(array.nbytes for array in mine.values())
    small = {name for name in contents(source) if not name.endswith(".safetensors")} - {"config.json", INDEX}
    assert {name: contents(job.product)[name] for name in small} == {name: contents(source)[name] for name in small}
    assert not any(path.is_symlink() for path in job.product.rglob("*"))
    assert not any(path.name.startswith(".") for path in job.product.iterdir())


def load_all(folder: Path) -> dict[str, np.ndarray]:
    return {name: array for file in sorted(folder.glob("*.safetensors")) for name, array in load_file(file).items()}


def test_FL_39_the_configuration_says_what_the_headers_say(finished: tuple[Job, Product]) -> None:
    block = json.loads((finished[0].product / "config.json").read_text())["quantization_config"]
    assert block["tensor_storage"][f"{SWAPPED}.0.gate_proj"]["bits_per_weight"] == 2
    modules = read_pack(finished[0].product).modules.values()
    assert block["bits"] == round(sum(m.bits * m.weights for m in modules) / sum(m.weights for m in modules), 4)


def test_a_finished_overlay_verifies_and_is_found_again(finished: tuple[Job, Product]) -> None:
    job, product = finished
    verified = overlay.verify(job, product)
    assert verified.faults == ()
    assert verified.digests == product.digests
    before = contents(job.product)
    assert overlay.make(job) == product
    assert contents(job.product) == before


def test_provenance_names_every_byte_that_came(packs: tuple[Path, Path], finished: tuple[Job, Product]) -> None:
    told = json.loads((finished[0].product / PROVENANCE).read_text())
    assert len(told["tensors"]) == 2 * 3 * 4
    for one in told["tensors"]:
        start, stop = one["donor_bytes"]
        theirs = (packs[1] / one["donor_file"]).read_bytes()[start:stop]
        at, end = one["bytes"]
        assert (finished[0].product / one["file"]).read_bytes()[at:end] == theirs
    assert told["bytes"]["difference"] == told["bytes"]["in"] - told["bytes"]["out"]
    assert str(finished[0].product) not in json.dumps(told)


def test_the_estimate_knows_counts_and_writes_nothing(packs: tuple[Path, Path], tmp_path: Path) -> None:
    job = job_of(tmp_path / "not" / "there", packs[0], recipe_of(packs[1]))
    counts = overlay.estimate(job).counts
    assert counts["tensors out"] == counts["tensors in"] == "24"
    assert counts["files rewritten"] == REWRITTEN
    assert list(tmp_path.iterdir()) == []
    afar = PackSource(repository="lna/donor", revision="0" * 40)
    told = overlay.estimate(replace(job, recipe=recipe_of(packs[1]).model_copy(update={"donor": afar}))).counts
    assert told["tensors out"] == "24" and "known once" in told["bytes in"]


def draft_packs(folder: Path) -> tuple[Path, Path]:
    """A source whose draft experts are float8, and a donor that has them in EXL3 at other layer numbers."""
    whole = source_pack(folder / "whole", layers=2, draft_layers=1)
    float8_experts(whole, folder / "source", Generated(tool="float8-experts", layers=(2,)))
    return folder / "source", donor_pack(folder / "donor")


DRAFT = {"what": "mtp", "layers": {"model.layers.1": "model.layers.2"}}


def test_draft_experts_of_another_format_are_replaced(tmp_path: Path) -> None:
    source, donor = draft_packs(tmp_path)
    job = job_of(tmp_path, source, recipe_of(donor, **DRAFT))
    product = overlay.make(job)
    assert overlay.verify(job, product).faults == ()
    made, theirs = read_pack(job.product), read_pack(donor)
    mine = {name: entry for name, entry in made.tensors.items() if name.startswith("model.layers.2.mlp.experts.")}
    assert {name.rpartition(".")[2] for name in mine} == {"trellis", "suh", "svh", "mcg"}
    for name, entry in mine.items():
        other = theirs.tensors[name.replace("layers.2", "layers.1")]
        assert np.array_equal(entry.read(), other.read())
    assert int(product.summary["bytes out"]) > int(product.summary["bytes in"])


def test_FL_38_names_that_should_be_gone_are_found(tmp_path: Path) -> None:
    source, donor = draft_packs(tmp_path)
    job = job_of(tmp_path, source, recipe_of(donor, **DRAFT))
    product = overlay.make(job)
    file = next(iter(json.loads((job.product / PROVENANCE).read_text())["dropped"]))["file"]
    made = read_pack(job.product)
    stale = {"model.layers.2.mlp.experts.0.up_proj.weight": np.ones((128, 128), np.uint8)}
    save_file(load_file(job.product / file) | stale, job.product / file)
    edit(job.product / INDEX, lambda index: index["weight_map"].update(dict.fromkeys(stale, file)))
    assert made.tensors.keys().isdisjoint(stale)
    faults = overlay.verify(job, product).faults
    assert f"{next(iter(stale))} should have been dropped" in faults
    assert any("bytes, planned was" in fault for fault in faults)


def test_FL_44_a_scalar_marker_of_the_donor_becomes_a_vector(tmp_path: Path) -> None:
    source, donor = source_pack(tmp_path / "source"), donor_pack(tmp_path / "donor")
    tensors = load_file(donor / REWRITTEN)
    scalars = {name: array.reshape(()) if name.endswith(".mcg") else array for name, array in tensors.items()}
    save_file(scalars, donor / REWRITTEN)
    job = job_of(tmp_path, source, recipe_of(donor))
    product = overlay.make(job)
    assert overlay.verify(job, product).faults == ()
    assert read_pack(job.product).tensors[f"{SWAPPED}.0.up_proj.mcg"].shape == (1,)
    told = json.loads((job.product / PROVENANCE).read_text())["tensors"]
    marker = next(one for one in told if one["name"].endswith(".mcg"))
    assert (marker["donor_shape"], marker["shape"]) == ([], [1])


def renamed_donor(folder: Path) -> Path:
    """A donor that calls everything otherwise, as other families of models do."""
    donor = donor_pack(folder)
    words = {"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2", "mlp": "ffn", "model": "language_model"}

    def other(name: str) -> str:
        return ".".join(words.get(part, part) for part in name.split("."))

    for file in donor.glob("*.safetensors"):
        save_file({other(name): array for name, array in load_file(file).items()}, file)
    edit(donor / INDEX, lambda i: i.update(weight_map={other(name): file for name, file in i["weight_map"].items()}))
    block = json.loads((donor / "config.json").read_text())["quantization_config"]
    block["tensor_storage"] = {other(name): told for name, told in block["tensor_storage"].items()}
    edit(donor / "config.json", lambda c: c.update(quantization_config=block))
    return donor


NAMES = {"w1": "gate_proj", "w3": "up_proj", "w2": "down_proj", "ffn": "mlp"}


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_donors_scales_that_are_no_finite_numbers_are_a_fault(value: float, tmp_path: Path) -> None:
    """Nothing went wrong on the way, and no engine can serve it."""
    donor = donor_pack(tmp_path / "donor")
    tensors = load_file(donor / REWRITTEN)
    tensors[f"{SWAPPED}.1.up_proj.svh"][3] = value
    save_file(tensors, donor / REWRITTEN, {"format": "pt"})
    job = job_of(tmp_path, source_pack(tmp_path / "source"), recipe_of(donor))
    with pytest.raises(PackError, match="scales are not finite") as caught:
        overlay.make(job)
    assert caught.value.where.endswith(f"{SWAPPED}.1.up_proj.svh") and not job.product.exists()


def test_hidden_files_of_the_source_come_along(packs: tuple[Path, Path], tmp_path: Path) -> None:
    """What a clone or a download leaves, and what bears the names of our own notes."""
    source = Path(shutil.copytree(packs[0], tmp_path / "source"))
    hidden = (".gitattributes", ".cache/huggingface/CACHEDIR.TAG", "begun.json", ".carve-building")
    for name in hidden:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(name)
    job = job_of(tmp_path / "job", source, recipe_of(packs[1]))
    assert overlay.verify(job, overlay.make(job)).faults == ()
    assert {name: (job.product / name).read_text() for name in hidden} == {name: name for name in hidden}
    assert {path.name for path in job.root.iterdir()} <= {"product", "work"}


def test_a_small_file_that_changes_between_two_attempts_is_refused(packs: tuple[Path, Path], tmp_path: Path) -> None:
    source = Path(shutil.copytree(packs[0], tmp_path / "source"))

    def stop(what: str) -> None:
        raise KeyboardInterrupt

    job = job_of(tmp_path / "job", source, recipe_of(packs[1]))
    with pytest.raises(KeyboardInterrupt):
        overlay.make(replace(job, note=stop))
    (source / "tokenizer_config.json").write_text("{}")
    with pytest.raises(StateError, match="another source"):
        overlay.make(job)


def test_a_donor_may_use_other_names(packs: tuple[Path, Path], finished: tuple[Job, Product], tmp_path: Path) -> None:
    donor = renamed_donor(tmp_path / "donor")
    words = {"layers": {"language_model.layers.1": "model.layers.1"}, "names": NAMES}
    job = job_of(tmp_path, packs[0], recipe_of(donor, **words))
    product = overlay.make(job)
    assert product.digests["payload"] == finished[1].digests["payload"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"layers": {"model.layers.7": "model.layers.1"}}, "do not have the same experts"),
        ({"layers": {"model.layers.1": "model.layers.7"}}, "no such experts"),
        ({"experts": "mlp.no_experts"}, "no such experts"),
        ({"names": {"up_proj": "w3"}}, "do not have the same experts"),
        ({"names": {"up_proj": "gate_proj"}}, "two tensors of the donor get one name"),
        ({"fused": [["gate_proj", "side_proj"]]}, "lacks a projection"),
        ({"configuration": {"remove": ["not.there"]}}, "leads nowhere"),
        ({"configuration": {"remove": ["not_there"]}}, "removes what is not there"),
        ({"configuration": {"set": {"hidden_act.deep": 1}}}, "leads nowhere"),
        ({"configuration": {"set": {"quantization_config.bits": 8}}}, "derived from the headers"),
        ({"configuration": {"set": {"quantization_config.tensor_storage": {}}}}, "derived from the headers"),
        ({"configuration": {"set": {"quantization_config": {"quant_method": "fp8"}}}}, "derived from the headers"),
        ({"configuration": {"set": {"compression_config": {"quant_method": "fp8"}}}}, "derived from the headers"),
        ({"configuration": {"set": {"text_config": {"quantization_config": {}}}}}, "derived from the headers"),
        ({"configuration": {"remove": ["quantization_config"]}}, "derived from the headers"),
        ({"configuration": {"set": {"num_hidden_layers": 2}}}, "disagree on num_hidden_layers"),
        ({"configuration": {"remove": ["hidden_size"], "set": {"hidden_size": 64}}}, "disagree on hidden_size"),
    ],
    ids=str,
)
def test_an_order_that_does_not_fit_is_refused_before_a_byte(
    changes: dict[str, Any], words: str, packs: tuple[Path, Path], tmp_path: Path
) -> None:
    job = job_of(tmp_path, packs[0], recipe_of(packs[1], **changes))
    with pytest.raises(InputError, match=words):
        overlay.estimate(job)
    with pytest.raises(InputError, match=words):
        overlay.make(job)
    assert contents(tmp_path) == {}


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ({"experts": 3}, "do not have the same experts"),
        ({"intermediate": 256}, "another size"),
        ({"expert_bits": ((2, 3),)}, "differ in bits"),
    ],
    ids=str,
)
def test_a_donor_that_does_not_fit_is_refused(
    shape: dict[str, Any], words: str, packs: tuple[Path, Path], tmp_path: Path
) -> None:
    donor = donor_pack(tmp_path / "donor", **shape)
    fused = {"fused": [["gate_proj", "up_proj", "down_proj"]]}
    with pytest.raises(InputError, match=words):
        overlay.make(job_of(tmp_path, packs[0], recipe_of(donor, **fused)))


def test_a_donor_of_another_format_or_codebook_is_refused(tmp_path: Path) -> None:
    source, plain = source_pack(tmp_path / "source"), donor_pack(tmp_path / "plain")
    float8_experts(plain, tmp_path / "float8", Generated(tool="float8-experts", layers=(1,)))
    with pytest.raises(InputError, match="not EXL3"):
        overlay.make(job_of(tmp_path, source, recipe_of(tmp_path / "float8")))
    other = donor_pack(tmp_path / "other", book=Codebook.MUL1)
    job = job_of(tmp_path, source, recipe_of(other))
    overlay.make(job)
    assert read_pack(job.product).modules[f"{SWAPPED}.0.up_proj"].codebook is Codebook.MUL1


def test_configuration_edits_are_data(packs: tuple[Path, Path], tmp_path: Path) -> None:
    edits = {"set": {"rope_parameters.rope_theta": 10000, "note": "two bits"}, "remove": ["topk_group"]}
    job = job_of(tmp_path, packs[0], recipe_of(packs[1], configuration=edits))
    overlay.make(job)
    config = json.loads((job.product / "config.json").read_text())
    assert (config["rope_parameters"]["rope_theta"], config["note"]) == (10000, "two bits")
    assert "topk_group" not in config


def test_a_block_with_stored_tensors_is_kept_true(packs: tuple[Path, Path], tmp_path: Path) -> None:
    source = Path(shutil.copytree(packs[0], tmp_path / "source"))
    pack = read_pack(source)
    storage = {
        name: {"stored_tensors": {f"{name}.trellis": {"shape": list(pack.tensors[f"{name}.trellis"].shape)}}}
        | {"quant_format": "exl3", "bits_per_weight": module.bits}
        for name, module in pack.modules.items()
    }
    (source / "quantization_config.json").write_text(json.dumps({"tensor_storage": storage}))
    job = job_of(tmp_path, source, recipe_of(packs[1]))
    overlay.make(job)
    told = json.loads((job.product / "quantization_config.json").read_text())["tensor_storage"][f"{SWAPPED}.0.up_proj"]
    assert told["stored_tensors"][f"{SWAPPED}.0.up_proj.trellis"]["shape"] == [8, 8, 32]
    assert told["bits_per_weight"] == 2


def test_unchanged_files_are_linked_only_inside_a_store(packs: tuple[Path, Path], tmp_path: Path) -> None:
    store = tmp_path / "store"
    source = Path(shutil.copytree(packs[0], store / "source"))
    words = {"unchanged": "link", "store": str(store)}
    job = job_of(tmp_path, source, recipe_of(packs[1], **words), product=store / "product")
    product = overlay.make(job)
    assert (store / "product" / UNCHANGED).samefile(source / UNCHANGED)
    assert not (store / "product" / REWRITTEN).samefile(source / REWRITTEN)
    assert not any(path.is_symlink() for path in job.product.rglob("*"))
    assert overlay.verify(job, product).faults == ()
    outside = job_of(tmp_path, source, recipe_of(packs[1], **words), product=tmp_path / "product")
    with pytest.raises(StateError, match="outside the pack store"):
        overlay.make(outside)
    with pytest.raises(ValueError, match="name one, or copy"):
        recipe_of(packs[1], unchanged="link")


def test_reflinks_are_made_or_refused(packs: tuple[Path, Path], tmp_path: Path) -> None:
    job = job_of(tmp_path, packs[0], recipe_of(packs[1], unchanged="reflink"))
    try:
        product = overlay.make(job)
    except StateError as error:
        assert "reflinks" in error.what
        assert not job.product.exists()
    else:
        assert overlay.verify(job, product).faults == ()


def test_FL_46_a_source_with_links_out_is_refused(packs: tuple[Path, Path], tmp_path: Path) -> None:
    source = Path(shutil.copytree(packs[0], tmp_path / "source"))
    (source / UNCHANGED).unlink()
    (source / UNCHANGED).symlink_to(packs[0] / UNCHANGED)
    with pytest.raises(PackError, match="link leads out"):
        overlay.make(job_of(tmp_path, source, recipe_of(packs[1])))


def test_a_source_that_changes_under_the_work_is_refused(packs: tuple[Path, Path], tmp_path: Path) -> None:
    source = Path(shutil.copytree(packs[0], tmp_path / "source"))

    def meddle(what: str) -> None:
        if what.startswith("read the source again"):
            damage_byte(source / UNCHANGED, -1)

    job = replace(job_of(tmp_path, source, recipe_of(packs[1])), note=meddle)
    with pytest.raises(StateError, match=f"before and after.*\n.*{UNCHANGED}"):
        overlay.make(job)
    assert not job.product.exists()


def test_a_taken_name_and_other_work_are_refused(packs: tuple[Path, Path], tmp_path: Path) -> None:
    source = Path(shutil.copytree(packs[0], tmp_path / "source"))
    job = job_of(tmp_path, source, recipe_of(packs[1]))
    job.product.mkdir()
    (job.product / "model.safetensors").write_text("somebody's")
    with pytest.raises(StateError, match="exists already"):
        overlay.make(job)
    shutil.rmtree(job.product)

    def stop(what: str) -> None:
        raise KeyboardInterrupt(what)

    with pytest.raises(KeyboardInterrupt):
        overlay.make(replace(job, note=stop))
    os.utime(source / UNCHANGED)
    with pytest.raises(StateError, match="another source"):
        overlay.make(job)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ({"donor": {}}, "found none"),
        ({"donor": {"pack": "a", "repository": "b/c", "revision": "0" * 40}}, "exactly one"),
        ({"donor": {"repository": "b/c"}}, "needs its revision"),
        ({"donor": {"repository": "b/c", "revision": "0" * 8}}, "whole commit"),
        ({"layers": {}}, "replaces nothing"),
        ({"layers": {"a.1": "b.1", "a.2": "b.1"}}, "would replace one layer"),
    ],
    ids=str,
)
def test_an_order_says_what_it_means(words: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Overlay.model_validate(recipe_of(Path("donor")).model_dump() | words)
