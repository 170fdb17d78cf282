"""Which modules are EXL3, read from tensor headers alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file

from serve.plugin.headers import Header, quantised_parts, read_headers


def tensors(name: str, bits: int, inputs: int, outputs: int, *markers: str) -> dict[str, np.ndarray]:
    """The tensors of one EXL3 module."""
    made = {
        f"{name}.trellis": np.zeros((inputs // 16, outputs // 16, 16 * bits), np.int16),
        f"{name}.suh": np.zeros(inputs, np.float16),
        f"{name}.svh": np.zeros(outputs, np.float16),
    }
    return made | {f"{name}.{marker}": np.zeros(1, np.int32) for marker in markers}


@given(bits=st.integers(1, 8), rows=st.integers(1, 4), columns=st.integers(1, 4))
@pytest.mark.parametrize(("markers", "codebook"), [((), "default"), (("mcg",), "mcg"), (("mul1",), "mul1")])
def test_bits_shape_and_codebook_come_from_the_tensors(  # noqa: PLR0917 (drawn arguments)
    tmp_path_factory: pytest.TempPathFactory,
    markers: tuple[str, ...],
    codebook: str,
    bits: int,
    rows: int,
    columns: int,
) -> None:
    pack = tmp_path_factory.mktemp("pack")
    save_file(tensors("a.b", bits, 128 * rows, 128 * columns, *markers), str(pack / "model.safetensors"))
    assert read_headers(str(pack)) == {"a.b": Header(bits, 128 * rows, 128 * columns, codebook)}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"a.trellis": np.zeros((8, 8, 40), np.int16)}, "K from 1 to 8"),
        ({"a.trellis": np.zeros((8, 8, 144), np.int16)}, "K from 1 to 8"),
        ({"a.suh": np.zeros(64, np.float16)}, r"a\.suh: expected \[128\]"),
        ({"a.mul1": np.zeros(1, np.int32)}, "one at most"),
    ],
)
def test_malformed_modules_are_named(tmp_path: Path, change: dict[str, np.ndarray], words: str) -> None:
    save_file(tensors("a", 2, 128, 128, "mcg") | change, str(tmp_path / "model.safetensors"))
    with pytest.raises(ValueError, match=words):
        read_headers(str(tmp_path))


def test_a_folder_without_tensors_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no \*\.safetensors"):
        read_headers(str(tmp_path))


def test_packed_modules_are_quantised_as_a_whole() -> None:
    one = Header(2, 128, 128, "mcg")
    headers = {"l.mlp.gate_proj": one, "l.mlp.up_proj": one, "l.mlp.down_proj": one, "l.attn.q_proj": one}
    assert quantised_parts(headers, "l.mlp.gate_up_proj", ["gate_proj", "up_proj"]) == [
        "l.mlp.gate_proj",
        "l.mlp.up_proj",
    ]
    assert quantised_parts(headers, "l.mlp.down_proj", []) == ["l.mlp.down_proj"]
    assert quantised_parts(headers, "l.attn.o_proj", []) == []
    with pytest.raises(ValueError, match="only"):
        quantised_parts(headers, "l.attn.qkv_proj", ["q_proj", "k_proj", "v_proj"])
