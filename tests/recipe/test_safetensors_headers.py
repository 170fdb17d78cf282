"""Headers of safetensors files: every kind of damage has its own name."""

import json
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from safetensors.numpy import save_file

from recipe.headers import Fault, PackError, read_header


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
