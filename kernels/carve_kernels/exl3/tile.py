"""The order of a tile's 256 weights.

The matrix ``W [in, out]`` is cut into tiles of 16 inputs x 16 outputs. Within a bitstream the weights follow the
register layout of the B operand of two ``mma.m16n8k16`` instructions: lane ``l`` of 32 holds eight weights,

    inputs   2 (l mod 4) + {0, 1, 8, 9}
    outputs  l div 4 + {0, 8}

with the four inputs of the first output before those of the second. So a warp decodes what it multiplies, without a
shuffle. Source: PTX ISA, fragments of ``mma.m16n8k16``; checked by ``golden``.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from carve_kernels.exl3.trellis import TILE_WEIGHTS
from runner.errors import InputError

SIDE = 16

T = TypeVar("T", bound=np.generic)


def _order() -> NDArray[np.int64]:
    lane, column, element = np.meshgrid(np.arange(32), [0, 8], [0, 1, 8, 9], indexing="ij")
    order: NDArray[np.int64] = ((lane % 4 * 2 + element) * SIDE + lane // 4 + column).reshape(TILE_WEIGHTS)
    order.setflags(write=False)
    return order


ORDER = _order()
"""``ORDER[t]`` is the row-major place (input * 16 + output) of the weight at position ``t`` of the stream."""

INVERSE = np.argsort(ORDER)
"""``INVERSE[input * 16 + output]`` is the position in the stream."""
INVERSE.setflags(write=False)


def to_matrix(tiles: NDArray[T]) -> NDArray[T]:
    """Tiles in stream order ``[in/16, out/16, 256]`` to a matrix ``[in, out]``."""
    rows, columns, weights = tiles.shape
    if weights != TILE_WEIGHTS:
        raise InputError("not tiles", expected="a last dimension of 256", found=str(tiles.shape))
    grid = tiles[..., INVERSE].reshape(rows, columns, SIDE, SIDE)
    return grid.transpose(0, 2, 1, 3).reshape(rows * SIDE, columns * SIDE)


def from_matrix(matrix: NDArray[T]) -> NDArray[T]:
    """A matrix ``[in, out]`` (multiples of 16) to tiles in stream order ``[in/16, out/16, 256]``."""
    rows, columns = matrix.shape
    if rows % SIDE or columns % SIDE:
        raise InputError("matrix does not divide into tiles", expected="multiples of 16", found=str(matrix.shape))
    grid = matrix.reshape(rows // SIDE, SIDE, columns // SIDE, SIDE).transpose(0, 2, 1, 3)
    return grid.reshape(rows // SIDE, columns // SIDE, TILE_WEIGHTS)[..., ORDER]
