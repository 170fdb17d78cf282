"""Headers, closure and census of a pack: every kind of damage has its own name."""

import json
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from carve_kernels.exl3.codebook import Codebook
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from safetensors.numpy import load_file, save_file

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


def _write(file: Path, header: object, data: bytes) -> None:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(text)) + text + data)


def _tensor(start: int, stop: int, shape: list[int] | None = None, dtype: str = "U8") -> dict[str, object]:
    return {"dtype": dtype, "shape": [stop - start] if shape is None else shape, "data_offsets": [start, stop]}


@pytest.mark.parametrize(
    ("header", "data", "fault"),
    [
        ({"a": _tensor(0, 4), "b": _tensor(4, 8)}, b"12345678", None),
        ({"b": _tensor(4, 8), "a": _tensor(0, 4), "empty": _tensor(4, 4)}, b"12345678", None),
        ({"a": _tensor(0, 4), "b": _tensor(5, 8)}, b"12345678", Fault.HOLE),
        ({"a": _tensor(1, 8)}, b"12345678", Fault.HOLE),
        ({"a": _tensor(0, 4)}, b"12345678", Fault.HOLE),
        ({"a": _tensor(0, 5), "b": _tensor(4, 8)}, b"12345678", Fault.OVERLAP),
        ({"a": _tensor(0, 8), "b": _tensor(0, 8)}, b"12345678", Fault.OVERLAP),
        ({"a": _tensor(0, 9)}, b"12345678", Fault.TRUNCATED),
        ({"a": _tensor(0, 8, [3])}, b"12345678", Fault.MALFORMED),
        ({"a": _tensor(0, 8, [-8])}, b"12345678", Fault.MALFORMED),
        ({"a": _tensor(0, 8, [2, 2], "U16")}, b"12345678", None),
        ({"a": _tensor(0, 8, [8], "U128")}, b"12345678", Fault.MALFORMED),
        ({"a": {"dtype": "U8", "shape": [8]}}, b"12345678", Fault.MALFORMED),
        ([], b"", Fault.MALFORMED),
        (b"{not json", b"", Fault.MALFORMED),
        (b'{"a": 1, "a": 2}', b"", Fault.MALFORMED),
    ],
)
def test_header_faults_are_told_apart(header: object, data: bytes, fault: Fault | None, tmp_path: Path) -> None:
    file = tmp_path / "x.safetensors"
    _write(file, header, data)
    if fault is None:
        assert read_header(file).entries
    else:
        with pytest.raises(PackError) as caught:
            read_header(file)
        assert caught.value.fault is fault
        assert str(file) in caught.value.where


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"", Fault.TRUNCATED),
        (b"\x08\0\0", Fault.TRUNCATED),
        (b"\xff" * 64, Fault.MALFORMED),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", Fault.LFS_POINTER),
    ],
)
def test_files_that_are_no_safetensors(content: bytes, fault: Fault, tmp_path: Path) -> None:
    file = tmp_path / "x.safetensors"
    file.write_bytes(content)
    with pytest.raises(PackError) as caught:
        read_header(file)
    assert caught.value.fault is fault


@given(st.data())
def test_any_cut_is_truncated(data: st.DataObject) -> None:
    import tempfile  # noqa: PLC0415 - hypothesis forbids tmp_path, which outlives an example

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "x.safetensors"
        save_file({"a": np.arange(20), "b": np.ones(3, np.float16)}, file)
        whole = file.read_bytes()
        file.write_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
        with pytest.raises(PackError) as caught:
            read_header(file)
        assert caught.value.fault is Fault.TRUNCATED


@given(st.sampled_from(["<f4", "<f2", "<i2", "<u1", "<i8"]).flatmap(lambda d: arrays.arrays(d, arrays.array_shapes())))
def test_reads_what_the_library_wrote(array: np.ndarray) -> None:
    import tempfile  # noqa: PLC0415 - see above

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "x.safetensors"
        save_file({"other": np.ones(3, np.float32), "a": array}, file)
        (entry,) = (entry for entry in read_header(file).entries if entry.name == "a")
        assert entry.read().tobytes() == array.tobytes()
        assert entry.shape == array.shape


def test_bfloat16_is_read_as_float32(tmp_path: Path) -> None:
    file = tmp_path / "x.safetensors"
    _write(file, {"a": _tensor(0, 4, [2], "BF16")}, bytes.fromhex("803f20c0"))
    assert read_header(file).entries[0].read().tolist() == [1.0, -2.5]


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


@pytest.mark.parametrize(
    ("dtype", "elements", "nbytes"),
    [("F4", 4, 2), ("F6_E2M3", 4, 3), ("F6_E3M2", 8, 6), ("C64", 1, 8), ("F8_E4M3FNUZ", 3, 3), ("F8_E8M0", 2, 2)],
)
def test_every_type_of_the_format_is_read(dtype: str, elements: int, nbytes: int, tmp_path: Path) -> None:
    file = tmp_path / "one.safetensors"
    _write(file, {"a": {"dtype": dtype, "shape": [elements], "data_offsets": [0, nbytes]}}, bytes(nbytes))
    assert read_header(file).entries[0].nbytes == nbytes
    _write(file, {"a": {"dtype": dtype, "shape": [elements + 1], "data_offsets": [0, nbytes]}}, bytes(nbytes))
    with pytest.raises(PackError, match="malformed tensor"):
        read_header(file)


@pytest.mark.parametrize("notes", [[], False, "", 0, {"a": 1}])
def test_notes_that_are_no_object_of_text_are_malformed(notes: object, tmp_path: Path) -> None:
    file = tmp_path / "one.safetensors"
    _write(file, {"__metadata__": notes}, b"")
    with pytest.raises(PackError, match="malformed metadata"):
        read_header(file)
    _write(file, {"__metadata__": None}, b"")
    assert read_header(file).metadata == {}


def test_a_shape_that_no_reader_holds_is_malformed(tmp_path: Path) -> None:
    file = tmp_path / "one.safetensors"
    for side, sound in ((2**63 - 1, True), (2**63, False)):
        _write(file, {"a": {"dtype": "F16", "shape": [0, side], "data_offsets": [0, 0]}}, b"")
        if sound:
            assert read_header(file).entries[0].shape == (0, side)
        else:
            with pytest.raises(PackError, match="malformed tensor"):
                read_header(file)
