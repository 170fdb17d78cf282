"""Closure and census of a pack: every kind of damage has its own name."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from carve_kernels.exl3.codebook import Codebook
from safetensors.numpy import load_file, save_file

from recipe.closure import index_faults
from recipe.headers import Fault, PackError, read_header
from recipe.mini import random_pack
from recipe.pack import INDEX, inspect, read_pack

SHARD = "model-00003-of-00003.safetensors"


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return random_pack.generate(tmp_path_factory.mktemp("packs") / "pack", experts=2, topk=1)


@pytest.fixture
def pack(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "pack"))


def test_census_comes_from_the_headers(original: Path) -> None:
    pack = read_pack(original)
    module = pack.modules["model.layers.1.mlp.experts.1.down_proj"]
    assert (module.bits, module.codebook, module.in_features, module.out_features) == (3, Codebook.MCG, 512, 256)
    matrix = 256 * 512
    assert pack.census() == {2: 4 * matrix, 3: 2 * matrix, 4: 6 * matrix}
    assert set(pack.tensors) == {name for file in original.glob("*.safetensors") for name in load_file(file)}


def test_digests_see_what_they_cover(pack: Path) -> None:
    before = read_pack(pack)
    digests = (before.header_digest(), before.payload_digest(), before.small_files_digest())
    weights = (pack / SHARD).read_bytes()
    (pack / SHARD).write_bytes(weights[:-1] + bytes([weights[-1] ^ 1]))
    (pack / "README.md").write_text("note\n")
    after = read_pack(pack)
    assert after.header_digest() == digests[0]
    assert after.payload_digest() != digests[1]
    assert after.small_files_digest() != digests[2]


def _edit(file: Path, change: Callable[[dict[str, Any]], object]) -> None:
    value = json.loads(file.read_text())
    change(value)
    file.write_text(json.dumps(value))


def _resave(pack: Path, change: Callable[[dict[str, np.ndarray]], object]) -> None:
    tensors = load_file(pack / SHARD)
    before = sum(array.nbytes for array in tensors.values())
    change(tensors)
    save_file(tensors, pack / SHARD)
    more = sum(array.nbytes for array in tensors.values()) - before
    _edit(pack / INDEX, lambda index: index["metadata"].update(total_size=index["metadata"]["total_size"] + more))


def _forget(pack: Path, name: str) -> None:
    _edit(pack / INDEX, lambda index: index["weight_map"].pop(name))
    _resave(pack, lambda tensors: tensors.pop(name))


def _two_sets_without_index(pack: Path) -> None:
    shutil.copyfile(pack / SHARD, pack / "model-00004-of-00003.safetensors")
    (pack / INDEX).unlink()


def _punch(pack: Path, name: str, nbytes: int) -> None:
    """The file as a download leaves it that takes the room first: nothing stands where a tensor's bytes would come."""
    file = pack / SHARD
    entry = next(entry for entry in read_header(file).entries if entry.name == name)
    content, start = file.read_bytes(), entry.start + -entry.start % 4096
    assert start + nbytes <= entry.stop and nbytes % 4096 == 0
    with file.open("wb") as stream:
        stream.write(content[:start])
        stream.seek(start + nbytes)
        stream.write(content[start + nbytes :])


EXPERT = "model.layers.1.mlp.experts.0.up_proj"
DAMAGE: dict[str, tuple[Callable[[Path], object], Fault, str]] = {
    "no tokenizer": (lambda p: (p / "tokenizer.json").unlink(), Fault.MISSING, "tokenizer.json"),
    "no shard": (lambda p: (p / SHARD).unlink(), Fault.MISSING, SHARD),
    "no index": (lambda p: (p / INDEX).unlink(), Fault.INDEX, INDEX),
    "empty index": (lambda p: (p / INDEX).write_text("{}"), Fault.INDEX, INDEX),
    "index names a stranger": (
        lambda p: _edit(p / INDEX, lambda i: i["weight_map"].update(stranger=SHARD)),
        Fault.INDEX,
        INDEX,
    ),
    "index forgets": (lambda p: _edit(p / INDEX, lambda i: i["weight_map"].pop(f"{EXPERT}.suh")), Fault.INDEX, INDEX),
    "a stale set beside the indexed one": (
        lambda p: shutil.copyfile(p / SHARD, p / "model-00001-of-00002.safetensors"),
        Fault.AMBIGUOUS,
        "model-00001-of-00002",
    ),
    "two whole sets and no index": (
        _two_sets_without_index,
        Fault.AMBIGUOUS,
        "pack",
    ),
    "index writer forgot the draft file": (
        lambda p: save_file({"mtp.fc.weight": np.ones(4, np.float16)}, p / "model-mtp-of-00003.safetensors"),
        Fault.INDEX,
        "model-mtp-of-00003",
    ),
    "total size counts the files": (
        lambda p: _edit(
            p / INDEX, lambda i: i["metadata"].update(total_size=sum(f.stat().st_size for f in p.iterdir()))
        ),
        Fault.INDEX,
        INDEX,
    ),
    "pointer for a tokenizer": (
        lambda p: (p / "tokenizer.json").write_text("version https://git-lfs.github.com/spec/v1\n"),
        Fault.LFS_POINTER,
        "tokenizer.json",
    ),
    "broken configuration": (lambda p: (p / "config.json").write_text("{"), Fault.MALFORMED, "config.json"),
    "link out": (lambda p: (p / "extra").symlink_to("/etc/hostname"), Fault.LINK, "extra"),
    "link to nowhere": (lambda p: (p / "extra").symlink_to("gone"), Fault.LINK, "extra"),
    "codes never written": (lambda p: _punch(p, f"{EXPERT}.trellis", 8192), Fault.UNWRITTEN, f"{EXPERT}.trellis"),
    "no scales": (lambda p: _forget(p, f"{EXPERT}.svh"), Fault.MODULE, EXPERT),
    "scales of another size": (
        lambda p: _resave(p, lambda t: t.update({f"{EXPERT}.suh": np.zeros(512, np.float16)})),
        Fault.MODULE,
        EXPERT,
    ),
    "unknown marker": (
        lambda p: _resave(p, lambda t: t.update({f"{EXPERT}.mcg": np.array(1, np.int32)})),
        Fault.MODULE,
        EXPERT,
    ),
    "not a trellis": (
        lambda p: _resave(p, lambda t: t.update({f"{EXPERT}.trellis": np.zeros((16, 32, 33), np.int16)})),
        Fault.MODULE,
        EXPERT,
    ),
    "configuration lies about bits": (
        lambda p: _edit(
            p / "config.json",
            lambda c: c["quantization_config"]["tensor_storage"][EXPERT].update(bits_per_weight=3),
        ),
        Fault.CONFIGURATION,
        EXPERT,
    ),
    "configuration lies about a codebook": (
        lambda p: _edit(
            p / "config.json",
            lambda c: c["quantization_config"]["tensor_storage"][EXPERT].update(codebook="mul1"),
        ),
        Fault.CONFIGURATION,
        EXPERT,
    ),
    "packed but not declared": (
        lambda p: _edit(p / "config.json", lambda c: c["quantization_config"]["tensor_storage"].pop(EXPERT)),
        Fault.CONFIGURATION,
        EXPERT,
    ),
    "declared but not packed": (
        lambda p: _edit(
            p / "config.json",
            lambda c: c["quantization_config"]["tensor_storage"].update(
                {"model.layers.1.self_attn.q_proj": {"quant_format": "exl3", "bits_per_weight": 4}}
            ),
        ),
        Fault.CONFIGURATION,
        "q_proj",
    ),
    "the mean is another": (
        lambda p: _edit(p / "config.json", lambda c: c["quantization_config"].update(bits=4)),
        Fault.CONFIGURATION,
        "config.json",
    ),
    "a block of its own that lies": (
        lambda p: (p / "quantization_config.json").write_text(
            json.dumps(
                {"tensor_storage": {EXPERT: {"stored_tensors": {f"{EXPERT}.trellis": {"shape": [16, 32, 112]}}}}}
            )
        ),
        Fault.CONFIGURATION,
        f"{EXPERT}.trellis",
    ),
}


def test_plain_zeros_that_a_copy_left_out_are_no_fault(pack: Path) -> None:
    """Padding and biases are zero by right, and some ways to copy make holes of zeros."""
    name = "model.layers.1.self_attn.q_proj.weight"
    _resave(pack, lambda tensors: tensors[name].fill(0))
    whole = (pack / SHARD).read_bytes()
    _punch(pack, name, 8192)
    assert (pack / SHARD).read_bytes() == whole
    assert inspect(pack)[1] == []


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_named(name: str, pack: Path) -> None:
    damage, fault, where = DAMAGE[name]
    damage(pack)
    _, faults = inspect(pack)
    assert {error.fault for error in faults} == {fault}
    assert where in faults[0].where
    with pytest.raises(PackError):
        read_pack(pack)


def test_a_configuration_of_four_bits_over_seven_is_told_by_layer(tmp_path: Path) -> None:
    folder = random_pack.generate(tmp_path / "pack", experts=1, topk=1, expert_bits=((7, 7),), mlp_bits=7)
    _edit(folder / "config.json", lambda c: c.update(quantization_config={"quant_method": "exl3", "bits": 4}))
    _, faults = inspect(folder)
    assert [error.found for error in faults] == ["4"]
    assert faults[0].expected.startswith("7.0000 (model.layers.0: K=7; model.layers.1: K=7")


def test_FL_40_a_configuration_that_speaks_of_another_class_is_a_fault(pack: Path) -> None:
    """The served class names its layers ``language_model.model.layers``, the block still ``model.layers``."""

    def renamed(config: dict[str, Any]) -> None:
        block = config["quantization_config"]
        block["tensor_storage"] = {f"language_model.{name}": facts for name, facts in block["tensor_storage"].items()}

    _edit(pack / "config.json", renamed)
    faults = inspect(pack)[1]
    assert {error.fault for error in faults} == {Fault.CONFIGURATION}
    assert {error.what for error in faults} == {
        "module is declared but not packed",
        "module is packed but not declared",
    }
    assert any(f"language_model.{EXPERT}" in error.where for error in faults)


def test_layers_are_counted_from_headers(original: Path) -> None:
    layers = read_pack(original).layers()
    assert list(layers) == ["outside the layers", "model.layers.0", "model.layers.1"]
    matrix = 256 * 512
    assert layers["model.layers.1"].bits == {2: 4 * matrix, 3: 2 * matrix, 4: 3 * matrix}
    assert layers["model.layers.1"].codebooks == {"mcg"}
    assert layers["outside the layers"].formats == {"F16": (2 * 2048 + 1) * 256 * 2}
    assert sum(layer.nbytes for layer in layers.values()) == _total(original)


def _total(pack: Path) -> int:
    return int(json.loads((pack / INDEX).read_text())["metadata"]["total_size"])


def test_a_pointer_tells_the_size_it_promises(pack: Path) -> None:
    (pack / SHARD).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 8589934592\n")
    with pytest.raises(PackError, match="8589934592 bytes") as caught:
        read_header(pack / SHARD)
    assert caught.value.fault is Fault.LFS_POINTER


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"a" * 64 + b"\nsize 4241003\n"


@pytest.mark.parametrize(
    "name",
    [INDEX, "config.json", "tokenizer.json", "quantization_config.json", "tokenizer.model", "assets/vocab.txt"],
)
def test_a_pointer_in_place_of_any_file_is_told_as_such(name: str, pack: Path) -> None:
    (pack / name).parent.mkdir(exist_ok=True)
    (pack / name).write_bytes(POINTER)
    assert [(one.fault, one.where) for one in inspect(pack)[1]] == [(Fault.LFS_POINTER, str(pack / name))]
    with pytest.raises(PackError, match="git lfs pull"):
        read_pack(pack)
    if name == INDEX:  # a float checkpoint, of which nothing else is read
        assert [one.fault for one in index_faults(pack, [])] == [Fault.LFS_POINTER]


def test_a_file_that_speaks_of_pointers_is_none(pack: Path) -> None:
    (pack / "README.md").write_bytes(b"A pointer begins so:\n" + POINTER)
    (pack / ".gitattributes").write_text("*.safetensors filter=lfs diff=lfs merge=lfs -text\n")
    (pack / "empty").touch()
    assert inspect(pack)[1] == []


def test_digests_are_noted_file_by_file(pack: Path, tmp_path: Path) -> None:
    found, kept = read_pack(pack), tmp_path / "digests.json"
    whole = found.payload_digest()
    assert found.payload_digest(kept) == whole
    noted = json.loads(kept.read_text())
    noted[SHARD]["digest"] = "0" * 64
    kept.write_text(json.dumps(noted))
    assert found.payload_digest(kept) != whole, "what is noted is not read again"
    os.utime(pack / SHARD)
    assert found.payload_digest(kept) == whole, "a file that changed is"


def test_link_inside_is_allowed(pack: Path) -> None:
    (pack / "copy.json").symlink_to("config.json")
    assert read_pack(pack).modules


def test_no_folder_no_pack(tmp_path: Path) -> None:
    with pytest.raises(PackError, match="no such pack"):
        read_pack(tmp_path / "nowhere")
    empty = tmp_path / "empty"
    empty.mkdir()
    assert {error.fault for error in inspect(empty)[1]} == {Fault.MISSING}
