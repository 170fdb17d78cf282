"""Codebooks: how a 16-bit trellis state becomes a weight.

None of the three codebooks is a table in the file. Each is a short function of the state whose outputs look like draws
from a normal distribution, so that a decoder needs no memory for it:

``default`` and ``mcg``
    Scramble the state by a multiplication modulo 2^32, turn both 16-bit halves of the product into half-precision
    numbers of moderate size by fixing some exponent bits, and add the two halves (standard deviation 1.244).
``mul1``
    Scramble likewise, add up the four bytes of the product, and map the sum (0..1020) linearly with one fused
    multiply-add (standard deviation 1.000).

Source: campaign section 5.1 and the decoder of exllamav3 1.4.5; checked bit by bit by ``golden``.
"""

from __future__ import annotations

from enum import StrEnum
from functools import cache

import numpy as np
from numpy.typing import NDArray

STATES = 1 << 16

MCG_MULTIPLIER = 0xCBAC1FED
MUL1_MULTIPLIER = 0x83DCD12D

# Sign, mantissa and the two low exponent bits come from the product; the flipped constant keeps magnitudes in [1/8, 2).
_KEEP, _FLIP = np.uint32(0x8FFF8FFF), np.uint32(0x3B603B60)

# 0x6400 is the half 1024.0, whose neighbours are whole numbers: adding 0..1020 to the bits adds it to the value.
_MUL1_BASE = np.uint32(0x6400)
_MUL1_SCALE = np.uint16(0x1EEE).view(np.float16)  # 0.00677, about 1 / 147.7
_MUL1_BIAS = np.uint16(0xC931).view(np.float16)  # -10.38, about -(1024 + 510) / 147.7


class Codebook(StrEnum):
    """The codebook of a module; a pack names it by the marker tensor it stores beside the trellis."""

    DEFAULT = "default"
    MCG = "mcg"
    MUL1 = "mul1"

    @property
    def abi(self) -> int:
        """The number of this codebook in the C ABI (``enum carve_codebook``)."""
        return list(Codebook).index(self)


_MULTIPLIERS = {Codebook.DEFAULT: np.uint32(89226354), Codebook.MCG: np.uint32(MCG_MULTIPLIER)}
_INCREMENTS = {Codebook.DEFAULT: np.uint32(64248484), Codebook.MCG: np.uint32(0)}


def decode(states: NDArray[np.uint16], codebook: Codebook) -> NDArray[np.float16]:
    """The weights (halves, same shape) of ``states`` (uint16, any shape)."""
    x = states.astype(np.uint32)
    if codebook is Codebook.MUL1:
        quarters = (x * np.uint32(MUL1_MULTIPLIER))[..., np.newaxis].view(np.uint8)
        value = (_MUL1_BASE + quarters.sum(axis=-1, dtype=np.uint32)).astype(np.uint16).view(np.float16)
        # In double precision product and sum are exact, so the conversion is the single rounding of a fused operation.
        fused = value.astype(np.float64) * np.float64(_MUL1_SCALE) + np.float64(_MUL1_BIAS)
        weights: NDArray[np.float16] = fused.astype(np.float16)
        return weights
    halves = pairs(states, codebook)[..., np.newaxis].view(np.float16)
    # Single precision holds the sum of two such halves exactly: again one rounding.
    sums: NDArray[np.float16] = halves.astype(np.float32).sum(axis=-1).astype(np.float16)
    return sums


def pairs(states: NDArray[np.uint16], codebook: Codebook) -> NDArray[np.uint32]:
    """The two halves whose sum is a weight, the first one low, of ``states`` (any shape). MUL1 has none: KeyError."""
    product = states.astype(np.uint32) * _MULTIPLIERS[codebook] + _INCREMENTS[codebook]
    return (product & _KEEP) ^ _FLIP


@cache
def table(codebook: Codebook) -> NDArray[np.float16]:
    """All 65,536 weights of a codebook, indexed by state; read-only."""
    values = decode(np.arange(STATES, dtype=np.uint32).astype(np.uint16), codebook)
    values.setflags(write=False)
    return values
