"""The arithmetic behind floors: bytes of EXL3 weights, experts a step touches, time to move them, Amdahl's bound.

Source of the byte counts: campaign sections 5.1 and 5.6 (a trellis stores 32·K bytes for 256 weights; the two sign
vectors are fp16, one entry a row and one a column).
"""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

WEIGHTS_OF_TILE = 256
"""A trellis tile is 16 by 16 weights."""
BYTES_OF_SIGN = 2


def linear_bytes(in_features: int, out_features: int, bits: int) -> int:
    """Bytes of one EXL3 linear: trellis and both sign vectors. Raises ValueError where tiles do not fit."""
    if in_features % 16 or out_features % 16:
        raise ValueError(f"{in_features} × {out_features} is not made of 16 × 16 tiles")
    if not 1 <= bits <= 8:
        raise ValueError(f"EXL3 has 1 to 8 bits, not {bits}")
    trellis = in_features * out_features // WEIGHTS_OF_TILE * 32 * bits
    return trellis + (in_features + out_features) * BYTES_OF_SIGN


def expert_bytes(hidden: int, intermediate: int, bits: int) -> int:
    """Bytes of one routed expert of one rank: gate and up (hidden → intermediate) and down (back)."""
    return 2 * linear_bytes(hidden, intermediate, bits) + linear_bytes(intermediate, hidden, bits)


def rank_shape(in_features: int, out_features: int, ranks: int, split: str) -> tuple[int, int]:
    """Shape of a linear on one rank; ``split`` names the side that is divided. Raises ValueError for a remainder."""
    if split == "none":
        return in_features, out_features
    divided = in_features if split == "in" else out_features
    if ranks < 1 or divided % ranks:
        raise ValueError(f"{divided} features cannot be divided among {ranks} ranks")
    return (in_features // ranks, out_features) if split == "in" else (in_features, out_features // ranks)


def unique_experts(experts: int, top_k: int, rows: int) -> float:
    """Expected number of different experts under uniform routing: E · (1 − (1 − 1/E)^(k·m))."""
    if experts < 1:
        raise ValueError("no experts, nothing to touch")
    if top_k < 0 or rows < 0:
        raise ValueError(f"{top_k} experts a row and {rows} rows: neither is below nought")
    return experts * (1 - (1 - 1 / experts) ** (top_k * rows))


def floor_microseconds(moved: Decimal, bandwidth: Decimal) -> Decimal:
    """Microseconds to move ``moved`` bytes at ``bandwidth`` · 10⁹ bytes a second. Raises ValueError below 0."""
    if bandwidth <= 0 or moved <= 0:
        raise ValueError("bytes and bandwidth must be positive")
    return moved / bandwidth / 1000


def whole_ceiling(share: Decimal) -> Decimal:
    """Largest gain of the whole when a ``share`` of it (0 to 1) takes no time any more (Amdahl)."""
    if not 0 < share < 1:
        raise ValueError(f"a share lies between 0 and 1, not at {share}")
    return 1 / (1 - share)


def agrees(written: str, computed: Decimal | Fraction | float) -> bool:
    """Whether ``computed`` rounds to the number as written: within half of its last digit, of nought within a half."""
    value = Decimal(written)
    exponent = value.as_tuple().exponent
    assert isinstance(exponent, int), "decimal text is finite"
    last = exponent if value else min(exponent, 0)  # ``0e20`` has no digit that could be that coarse
    return abs(Fraction(computed) - Fraction(value)) <= Fraction(10) ** last / 2


__all__ = [
    "agrees",
    "expert_bytes",
    "floor_microseconds",
    "linear_bytes",
    "rank_shape",
    "unique_experts",
    "whole_ceiling",
]
