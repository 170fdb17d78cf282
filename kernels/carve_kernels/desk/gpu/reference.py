"""What the numbers should be, in double precision on any device of torch; only the format is shared with kernels."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch

from carve_kernels.exl3 import codebook, hadamard, tile
from carve_kernels.exl3.codebook import Codebook

_STATES = np.arange(codebook.STATES, dtype=np.uint32).astype(np.uint16)


@cache
def _weights_of(book: Codebook, device: torch.device, of_pairs: bool) -> torch.Tensor:
    if not of_pairs or book is Codebook.MUL1:
        return torch.from_numpy(codebook.table(book).copy()).to(device)
    halves = codebook.pairs(_STATES, book)[:, np.newaxis].view(np.float16)
    return torch.from_numpy(halves.astype(np.float32).sum(axis=-1)).to(device)  # which holds every such sum exactly


@cache
def _operands_of(book: Codebook, device: torch.device, of_pairs: bool) -> torch.Tensor:
    twice = codebook.table(book).view(np.uint16).astype(np.int64) * 0x10001
    words = codebook.pairs(_STATES, book).astype(np.int64) if of_pairs and book is not Codebook.MUL1 else twice
    return torch.from_numpy(words).to(device)


@cache
def _hadamard(device: torch.device) -> torch.Tensor:
    return torch.from_numpy(hadamard.matrix().astype("float64")).sign().to(device) / 128**0.5


@cache
def _places(device: torch.device) -> torch.Tensor:
    return torch.from_numpy(tile.INVERSE.copy()).to(device)


def states(trellis: torch.Tensor) -> torch.Tensor:
    """The 16-bit states ``[..., 256]`` (int64) of a trellis ``[..., 16 K]`` (int16)."""
    bits = trellis.shape[-1] // 16
    words = trellis.to(torch.int64) & 0xFFFF
    words = words.unflatten(-1, (-1, 2)).flip(-1).flatten(-2)
    start = (torch.arange(256, device=trellis.device) * bits + bits - 16) % (256 * bits)
    first, offset = start // 16, start % 16
    pair = (words[..., first] << 16) | words[..., (first + 1) % words.shape[-1]]
    return (pair >> (16 - offset)) & 0xFFFF


def operands(trellis: torch.Tensor, book: Codebook, *, of_pairs: bool) -> torch.Tensor:
    """What each weight in stream order ``[..., 256]`` is multiplied as (int64 that holds 32 bits).

    The two halves of its pair, or the weight twice; MUL1, which has no pairs, always the weight twice.
    """
    return _operands_of(book, trellis.device, of_pairs)[states(trellis)]


def rotated_weights(trellis: torch.Tensor, book: Codebook, *, of_pairs: bool = False) -> torch.Tensor:
    """The coded matrix ``[in, out]`` in double precision, still between the two transforms.

    ``of_pairs``: the exact sum of a weight's two halves, where the format rounds it to half.
    """
    tiles = _weights_of(book, trellis.device, of_pairs)[states(trellis)][..., _places(trellis.device)]
    rows, columns, _ = tiles.shape
    grid = tiles.view(rows, columns, 16, 16).permute(0, 2, 1, 3)
    return grid.reshape(rows * 16, columns * 16).double()


def transform(x: torch.Tensor) -> torch.Tensor:
    """The Hadamard transform of every block of 128 of the last dimension."""
    return (x.unflatten(-1, (-1, 128)) @ _hadamard(x.device)).flatten(-2)


def linear(
    x: torch.Tensor,
    trellis: torch.Tensor,
    suh: torch.Tensor,
    svh: torch.Tensor,
    book: Codebook,
    *,
    of_pairs: bool = False,
) -> torch.Tensor:
    """``x [rows, in]`` (double) to ``[rows, out]`` (double), nothing rounded."""
    matrix = rotated_weights(trellis, book, of_pairs=of_pairs)
    return transform(transform(x * suh.double()) @ matrix) * svh.double()


def at_entry(x: torch.Tensor) -> torch.Tensor:
    """``x`` rounded to half, where the numeric boundary of every kernel lies (campaign section 5.2)."""
    return x.half().double()
