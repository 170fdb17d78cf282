"""The native decoder gives the reference's halves, bit by bit, on every instruction set."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from carve_kernels.exl3 import trellis
from carve_kernels.exl3.codebook import Codebook
from carve_kernels.exl3.linear import reconstruct
from carve_kernels.library import Library, matrix
from numpy.typing import NDArray

Load = Callable[..., Library]


def _decode(library: Library, words: NDArray[np.uint16], book: Codebook) -> NDArray[np.float32]:
    rows, columns = words.shape[0] * 16, words.shape[1] * 16
    ones = np.ones(max(rows, columns), np.float16)
    out = np.full((rows, columns), np.nan, np.float32)
    assert library.decode(matrix(words, ones[:rows].copy(), ones[:columns].copy(), book.abi), out) == ""
    return out


def _same(out: NDArray[np.float32], words: NDArray[np.uint16], book: Codebook) -> bool:
    return np.array_equal(out.view(np.uint32), reconstruct(words, book).astype(np.float32).view(np.uint32))


@pytest.mark.parametrize("bits", trellis.BITS)
@pytest.mark.parametrize("book", Codebook)
def test_equals_the_reference(load: Load, isa: str, bits: int, book: Codebook) -> None:
    library = load("decode", isa)
    assert library.describe["isa"] == isa
    draw = np.random.default_rng(bits)
    words = draw.integers(0, 1 << 16, (16, 24, 16 * bits), dtype=np.uint16)
    words[0, 0], words[0, 1] = 0, 0xFFFF
    for bit in range(8):  # a walking bit, also across the ring's closure
        words[1, bit], words[2, bit] = 0, 0
        words[1, bit, 0] = 1 << (2 * bit)
        words[2, bit, -1] = 1 << (2 * bit)
    assert _same(_decode(library, words, book), words, book)


@pytest.mark.parametrize("book", Codebook)
def test_every_state(load: Load, isa: str, book: Codebook) -> None:
    # K = 8: two neighbouring bytes are a state. Tiles a, 0, a, 1, a, 2 ... hold every pair of bytes.
    states = np.zeros((512, 256), np.uint16)
    first = np.repeat(np.arange(256), 2)[:, np.newaxis]
    second = np.concatenate([np.tile(np.arange(128) + 128 * part, (1, 1)) for part in (0, 1)] * 256)
    stream = np.stack([np.broadcast_to(first, second.shape), second], axis=-1).reshape(512, 256).astype(np.uint16)
    states = (np.roll(stream, 1, axis=1) << 8 | stream).astype(np.uint16)
    assert len(np.unique(states)) == 1 << 16
    words = trellis.pack(states, 8).reshape(16, 32, 128)
    assert _same(_decode(load("decode", isa), words, book), words, book)
