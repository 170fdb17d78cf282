"""What the numbers should be, in double precision on any device of torch; only the format is shared with kernels."""

from __future__ import annotations

from functools import cache

import torch

from carve_kernels.exl3 import codebook, hadamard, tile
from carve_kernels.exl3.codebook import Codebook


@cache
def _weights_of(book: Codebook, device: torch.device) -> torch.Tensor:
    return torch.from_numpy(codebook.table(book).copy()).to(device)


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


def rotated_weights(trellis: torch.Tensor, book: Codebook) -> torch.Tensor:
    """The coded matrix ``[in, out]`` in double precision, still between the two transforms."""
    tiles = _weights_of(book, trellis.device)[states(trellis)][..., _places(trellis.device)]
    rows, columns, _ = tiles.shape
    grid = tiles.view(rows, columns, 16, 16).permute(0, 2, 1, 3)
    return grid.reshape(rows * 16, columns * 16).double()


def transform(x: torch.Tensor) -> torch.Tensor:
    """The Hadamard transform of every block of 128 of the last dimension."""
    return (x.unflatten(-1, (-1, 128)) @ _hadamard(x.device)).flatten(-2)


def linear(
    x: torch.Tensor, trellis: torch.Tensor, suh: torch.Tensor, svh: torch.Tensor, book: Codebook
) -> torch.Tensor:
    """``x [rows, in]`` (double) to ``[rows, out]`` (double), nothing rounded."""
    return transform(transform(x * suh.double()) @ rotated_weights(trellis, book)) * svh.double()


def at_entry(x: torch.Tensor) -> torch.Tensor:
    """``x`` rounded to half, where the numeric boundary of every kernel lies (campaign section 5.2)."""
    return x.half().double()
