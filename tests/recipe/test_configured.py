"""A configuration that says something else than the headers, in any of its words, and honest ones beside them."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from carve_kernels.exl3 import pack_format
from carve_kernels.exl3.codebook import Codebook
from carve_kernels.exl3.linear import Linear
from safetensors.numpy import load_file

from recipe import pack_write
from recipe.closure import QUANTISATION, weight_files
from recipe.configured import anew
from recipe.headers import Fault, read_header
from recipe.pack import inspect, read_pack
from runner.paths import source_root
from tests.recipe.overlays import SWAPPED, edit, source_pack

Words = dict[str, Any]
SIZES = ("num_hidden_layers", "n_routed_experts", "hidden_size", "moe_intermediate_size")
MODULE = f"{SWAPPED}.0.up_proj"


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return source_pack(tmp_path_factory.mktemp("sound") / "pack")


@pytest.fixture
def pack(sound: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "pack"))


def block(change: Callable[[Words], object]) -> Callable[[Words], object]:
    return lambda config: change(config["quantization_config"])


def all_fp8(told: Words) -> None:
    for value in told["tensor_storage"].values():
        value.update(quant_format="fp8", bits_per_weight=8)


def rewrite(folder: Path, change: Callable[[Words], Words]) -> None:
    for file in weight_files(folder):
        pack_write.write_shard(file, change(load_file(file)))
    pack_write.write_index(folder, [read_header(file) for file in weight_files(folder)])


def without(folder: Path, words: str) -> None:
    """A pack of which some tensors were lost by everybody but the configuration's sizes."""
    rewrite(folder, lambda tensors: {name: array for name, array in tensors.items() if words not in name})
    for file in weight_files(folder):
        if not read_header(file).entries:
            file.unlink()
    stamped(folder)


def sizes(config: Words) -> Words:
    return {name: config[name] for name in SIZES}


def told_at_eight(config: Words) -> Words:
    made: Words = copy.deepcopy(config["quantization_config"])
    for told in made["tensor_storage"].values():
        told["bits_per_weight"] = 8
    return made | {"bits": 8.0}


LIES: dict[str, tuple[Callable[[Words], object], str]] = {
    "no module declared": (block(lambda q: q.update(tensor_storage={})), "packed but not declared"),
    "a list of modules": (block(lambda q: q.update(tensor_storage=[MODULE])), "modules are declared in another form"),
    "every module in another format": (block(all_fp8), "packed but not declared"),
    "no block": (lambda c: c.pop("quantization_config"), "no configuration declares"),
    "a block that is text": (lambda c: c.update(quantization_config="exl3"), "quantisation is declared in another"),
    "another method": (block(lambda q: q.update(quant_method="fp8")), "declared another way"),
    "another codebook": (block(lambda q: q.update(codebook="mul1")), "disagree on the codebook"),
    "another marker": (block(lambda q: q.update(codebook_marker=5)), "disagree on the marker"),
    "bits as text": (block(lambda q: q.update(bits=str(q["bits"]))), "disagree on the bits a weight"),
    "bits as a truth": (block(lambda q: q.update(bits=True)), "disagree on the bits a weight"),
    "bits of the head": (block(lambda q: q.update(head_bits=6)), "disagree on head_bits"),
    "bits of the head as a list": (block(lambda q: q.update(head_bits=[16])), "disagree on head_bits"),
    "another multiplier": (
        block(lambda q: q["tensor_storage"][MODULE].update(mcg_multiplier=5)),
        "disagree on mcg_multiplier",
    ),
    "the multiplier of another codebook": (
        block(lambda q: q["tensor_storage"][MODULE].update(mul1_multiplier=pack_format.MARKERS[Codebook.MUL1])),
        "disagree on mul1_multiplier",
    ),
    "other bits further in": (
        lambda c: c.update(text_config=sizes(c) | {"quantization_config": told_at_eight(c)}),
        "a module's bits",
    ),
    "another method under the older name": (
        lambda c: c.update(compression_config={"quant_method": "fp8", "bits": 8}),
        "declared another way",
    ),
    "no method under the older name": (
        lambda c: c.update(text_config=sizes(c) | {"compression_config": {"format": "pack-quantized"}}),
        "declared another way",
    ),
    "too many layers": (lambda c: c.update(num_hidden_layers=30), "num_hidden_layers"),
    "too few layers": (lambda c: c.update(num_hidden_layers=2), "num_hidden_layers"),
    "layers as text": (lambda c: c.update(num_hidden_layers="3"), "num_hidden_layers"),
    "too many experts": (lambda c: c.update(n_routed_experts=64), "n_routed_experts"),
    "too few experts": (lambda c: c.update(n_routed_experts=1), "n_routed_experts"),
    "another width": (lambda c: c.update(hidden_size=999), "hidden_size"),
    "another width of experts": (lambda c: c.update(moe_intermediate_size=256), "moe_intermediate_size"),
}


@pytest.mark.parametrize("name", LIES)
def test_a_configuration_that_lies_is_told(name: str, pack: Path) -> None:
    change, words = LIES[name]
    edit(pack / "config.json", change)
    faults = inspect(pack)[1]
    assert {fault.fault for fault in faults} == {Fault.CONFIGURATION}
    assert any(words in fault.what for fault in faults), faults


@pytest.mark.parametrize("file", ["config.json", QUANTISATION])
def test_a_name_that_stands_twice_is_no_configuration(file: str, pack: Path) -> None:
    config = json.loads((pack / "config.json").read_text())
    told = config if file == "config.json" else config["quantization_config"]
    twice = "quantization_config" if file == "config.json" else "bits"
    text = json.dumps(told)[1:]
    (pack / file).write_text(f'{{"{twice}": {json.dumps(told[twice])}, {text}')
    assert [(fault.fault, fault.where) for fault in inspect(pack)[1]] == [(Fault.MALFORMED, str(pack / file))]
    (pack / file).write_text("{" + text)
    assert inspect(pack)[1] == []


def add(stray: Words, tensors: Words) -> Words:
    return tensors | (stray if f"{MODULE}.trellis" in tensors else {})


def drop(stray: Words, tensors: Words) -> Words:
    return {name: array for name, array in tensors.items() if name not in stray}


def test_a_module_that_is_coded_and_plain_is_told(pack: Path) -> None:
    for part in ("weight", "weight_scale_inv"):
        stray = {f"{MODULE}.{part}": np.zeros((4, 4), np.float16)}
        rewrite(pack, partial(add, stray))
        assert [fault.fault for fault in inspect(pack)[1]] == [Fault.MODULE]
        rewrite(pack, partial(drop, stray))
    assert inspect(pack)[1] == []


@pytest.mark.parametrize(("lost", "words"), [(".layers.1.", "num_hidden_layers"), (".experts.1.", "n_routed_experts")])
def test_a_pack_that_lost_a_part_is_told(lost: str, words: str, pack: Path) -> None:
    without(pack, lost)
    faults = inspect(pack)[1]
    assert len(faults) == 1 and words in faults[0].what


def inside(config: Words) -> None:
    """As models that see have it: the language model's sizes stand one level below."""
    config["text_config"] = {name: config.pop(name) for name in SIZES}
    config["num_hidden_layers"] = 27  # of the tower


def block_inside(config: Words) -> None:
    inside(config)
    config["text_config"]["quantization_config"] = config.pop("quantization_config")


HONEST: dict[str, Callable[[Words], object]] = {
    "sizes inside text_config": inside,
    "the only block inside text_config": block_inside,
    "a block in two places": lambda c: c.update(
        text_config=sizes(c) | {"quantization_config": c["quantization_config"]}
    ),
    "nothing under the older name": lambda c: c.update(compression_config=None),
    "a head as it was": block(lambda q: q.update(head_bits=16)),
    "the codebook's multiplier": block(
        lambda q: q["tensor_storage"][MODULE].update(mcg_multiplier=pack_format.MARKERS[Codebook.MCG] % 2**32)
    ),
    "no sizes at all": lambda c: [c.pop(name) for name in ("num_hidden_layers", "n_routed_experts", "hidden_size")],
    "experts told layer by layer": lambda c: c.update(n_routed_experts=[0, 2, 2]),
    "the last layer is a draft": lambda c: c.update(num_hidden_layers=2, num_nextn_predict_layers=1),
    "drafts that were left out": lambda c: c.update(num_nextn_predict_layers=1),
    "no storage": block(lambda q: q.pop("tensor_storage")),
    "no codebook": block(lambda q: [q.pop(name) for name in ("codebook", "codebook_marker")]),
    "rounded bits": block(lambda q: q.update(bits=round(q["bits"], 1))),
}


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_configuration_is_no_fault(name: str, pack: Path) -> None:
    edit(pack / "config.json", HONEST[name])
    assert inspect(pack)[1] == []


def stamped(folder: Path) -> None:
    """Our own writer's block for the tensors that are there."""
    shapes = ((e.name, e.shape) for file in weight_files(folder) for e in read_header(file).entries)
    edit(folder / "config.json", lambda c: c.update(quantization_config=pack_write.quantization_config(shapes)))


def half_bits(tensors: Words) -> Words:
    name = f"{MODULE}.trellis"
    return tensors | ({name: np.ones((8, 8, 40), np.int16)} if name in tensors else {})


def coded_head(tensors: Words) -> Words:
    head = Linear(np.ones((8, 32, 16 * 6), np.uint16), np.ones(128, np.float16), np.ones(512, np.float16), Codebook.MCG)
    new = pack_format.to_tensors("lm_head", head) if "lm_head.weight" in tensors else {}
    return {name: array for name, array in tensors.items() if name != "lm_head.weight"} | new


def test_halves_of_a_bit_are_known_with_mul1_alone(pack: Path, tmp_path: Path) -> None:
    other = source_pack(tmp_path / "other", book=Codebook.MUL1)
    rewrite(other, half_bits)
    stamped(other)
    assert inspect(other)[1] == []
    assert read_pack(other).modules[MODULE].bits == 2.5
    told = json.loads((other / "config.json").read_text())["quantization_config"]["tensor_storage"][MODULE]
    assert told["bits_per_weight"] == 2.5
    edit(other / "config.json", block(lambda q: q["tensor_storage"][MODULE].update(bits_per_weight=2)))
    assert "module's bits" in inspect(other)[1][0].what
    rewrite(pack, half_bits)
    assert [(fault.fault, fault.what) for fault in inspect(pack)[1]] == [(Fault.MODULE, "not a trellis")]


def test_bits_of_the_body_are_the_packs_where_the_head_has_its_own(pack: Path) -> None:
    """As exllamav3 tells them: ``bits`` without the head, ``head_bits`` beside it."""
    body = json.loads((pack / "config.json").read_text())["quantization_config"]["bits"]
    rewrite(pack, coded_head)
    stamped(pack)
    assert inspect(pack)[1] == []
    whole = json.loads((pack / "config.json").read_text())["quantization_config"]["bits"]
    assert whole > body + 0.2
    edit(pack / "config.json", block(lambda q: q.update(bits=body, head_bits=6)))
    assert inspect(pack)[1] == []
    told = json.loads((pack / "config.json").read_text())["quantization_config"]
    assert anew(told, read_pack(pack).tensors)["bits"] == body, "the block goes on in its own way"
    stale = read_pack(pack).tensors
    assert anew(told | {"head_bits": 3}, stale)["head_bits"] == 6, "the head's bits are those of its codes"
    edit(pack / "config.json", block(lambda q: q.update(head_bits=3)))
    assert [fault.what for fault in inspect(pack)[1]] == ["configuration and headers disagree on head_bits"]
    edit(pack / "config.json", block(lambda q: q.update(head_bits=6, bits=body - 0.5)))
    assert [fault.fault for fault in inspect(pack)[1]] == [Fault.CONFIGURATION]


def test_a_vocabulary_may_say_a_token_twice(pack: Path) -> None:
    """Every reader of tokenizers takes the last one."""
    text = (pack / "tokenizer_config.json").read_text().strip()
    (pack / "tokenizer_config.json").write_text('{"note": 1, "note": 2, ' + text[1:])
    assert inspect(pack)[1] == []


def test_the_committed_pack_is_sound() -> None:
    assert read_pack(source_root() / "recipe/mini/pack").census()
