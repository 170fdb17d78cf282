"""Gains in one measure: how many times as fast, whether they are written as a ratio or in per cent."""

from __future__ import annotations

from decimal import Decimal

RATIOS = ("ratio", "×", "x", "times")
PER_CENT = ("%", "per cent", "percent")


def is_per_cent(unit: str) -> bool:
    """Of anything: ``%``, ``% of the step``."""
    return unit.lower().startswith(PER_CENT)


def factor(written: str, unit: str) -> Decimal | None:
    """How many times as fast: 1.2 for a ratio of 1.2, for 20 %, and for 16.7 % of the step, which is time saved.

    None for a unit that says no gain, and for all of the time saved.
    """
    value = Decimal(written)
    if unit.lower() in RATIOS:
        return value
    if not is_per_cent(unit):
        return None
    part = value / 100
    if unit.lower() in PER_CENT:
        return 1 + part
    return 1 / (1 - part) if part < 1 else None


__all__ = ["RATIOS", "factor", "is_per_cent"]
