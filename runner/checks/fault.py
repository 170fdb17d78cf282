"""One thing that is wrong with an order."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong."""

    path: tuple[str | int, ...]
    """Field of the order."""
    message: str
