"""Hadamard transform over independent blocks of 128.

Multiplying by a Hadamard matrix spreads every weight (and every outlying activation) over its whole block, after which
the values look normally distributed, which is what the codebooks are made for. The matrix is Sylvester's
``H[i, j] = (-1)^popcount(i & j) / sqrt(128)``: symmetric, and its own inverse. Source: campaign section 5.1.
"""

from __future__ import annotations

from functools import cache
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from runner.errors import InputError

BLOCK = 128

F = TypeVar("F", np.float32, np.float64)


@cache
def matrix() -> NDArray[np.float32]:
    """The 128 x 128 matrix, float32, read-only."""
    signs = np.ones((1, 1), dtype=np.float64)
    while len(signs) < BLOCK:
        signs = np.block([[signs, signs], [signs, -signs]])
    values: NDArray[np.float32] = (signs / np.sqrt(BLOCK)).astype(np.float32)
    values.setflags(write=False)
    return values


def transform(x: NDArray[F]) -> NDArray[F]:
    """Transform the last dimension, a multiple of 128 (InputError otherwise); shape and type are kept."""
    if x.ndim == 0 or x.shape[-1] % BLOCK:
        raise InputError("dimension has no Hadamard blocks", expected="a multiple of 128", found=str(x.shape))
    blocks = x.reshape(*x.shape[:-1], -1, BLOCK)
    rotated: NDArray[F] = blocks @ matrix().astype(x.dtype)
    return rotated.reshape(x.shape)
