"""The script that makes the golden vectors, run on this package's reference in place of a GPU."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from carve_kernels.exl3 import codebook, golden, hadamard, linear, native, trellis
from carve_kernels.exl3.codebook import Codebook


class Reference(golden.Device):
    """The operators that the script calls, computed by the reference."""

    def __init__(self) -> None:
        """Nothing to load."""

    def facts(self) -> dict[str, str]:
        return {"device": "reference"}

    def reconstruct(self, coded: golden.Words, book: Codebook) -> Any:
        return linear.reconstruct(coded, book)

    def table(self, book: Codebook) -> Any:
        return codebook.table(book)

    def unpack(self, coded: golden.Words) -> golden.Words:
        return trellis.windows(coded)

    def pack(self, states: golden.Words, bits: int) -> golden.Words:
        return trellis.pack(states, bits)

    def hadamard(self, x: Any) -> Any:
        return hadamard.transform(x)

    def forward(self, x: Any, layer: linear.Linear) -> Any:
        return linear.forward(x, layer)

    def quantise(self, tiles: Any, bits: int, book: Codebook) -> Any:
        states = native.search(tiles, bits, book)
        return codebook.table(book)[states].astype(np.float32), states


class OtherOrder(Reference):
    """A decoder that reads the bits of a word from the wrong end."""

    def reconstruct(self, coded: golden.Words, book: Codebook) -> Any:
        return linear.reconstruct(coded.byteswap(), book)


class Broken(Reference):
    """A device whose quantiser fails."""

    def quantise(self, tiles: Any, bits: int, book: Codebook) -> Any:
        raise RuntimeError("no kernel image")


def test_reference_agrees_with_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert golden.run(Reference(), [tmp_path / "out.npz", tmp_path / "raw.npz"]) == 0
    assert "160 comparisons, 0 differ, 0 sections failed" in capsys.readouterr().out
    assert (tmp_path / "out.npz").stat().st_size < 400_000
    with np.load(tmp_path / "raw.npz") as raw:
        assert np.array_equal(raw["table/mcg"], codebook.table(Codebook.MCG).view(np.uint16))


def test_another_bit_order_is_seen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert golden.run(OtherOrder(), [tmp_path / "out.npz"]) == 1
    assert "DIFFERS every random tile K=2 mcg" in capsys.readouterr().out


def test_a_failed_section_costs_only_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert golden.run(Broken(), [tmp_path / "out.npz"]) == 1
    out = capsys.readouterr().out
    assert "quantised: FAILED" in out
    assert "forwards: ok" in out
    with np.load(tmp_path / "out.npz") as kept:
        assert "forward/8/mul1" in kept
        assert "no kernel image" in json.loads(kept["facts"].tobytes())["failed"]["quantised"]
