"""Decimals that another machine works out: its logarithm may end in another bit.

IEEE 754 does not say how ``log`` and ``exp`` round. C libraries differ in the last bit, and one library does between
processors with and without fused multiplication. What is left of a difference of nearly equal numbers, as of two
distributions, then differs from the twelfth decimal place on.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import isclose

RELATIVE, ABSOLUTE = 1e-10, 1e-13
"""Far beyond what rounding does, far below what any gate looks at."""
_DECIMAL = re.compile(r"-?[0-9]{1,20}(\.[0-9]{1,20})?(e-?[0-9]{1,3})?")


def alike(one: object, other: object) -> bool:
    """Whether two dumped records are equal apart from such rounding; whole numbers and words are equal or not."""
    if isinstance(one, str) and isinstance(other, str):
        return one == other or _close(one, other)
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(alike(value, other[name]) for name, value in one.items())
    if isinstance(one, Sequence) and isinstance(other, Sequence) and not isinstance(one, str | bytes):
        return len(one) == len(other) and all(map(alike, one, other))
    return type(one) is type(other) and one == other


def _close(one: str, other: str) -> bool:
    if not (_DECIMAL.fullmatch(one) and _DECIMAL.fullmatch(other)) or {".", "e"}.isdisjoint(one + other):
        return False
    return isclose(float(one), float(other), rel_tol=RELATIVE, abs_tol=ABSOLUTE)


__all__ = ["alike"]
