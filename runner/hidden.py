"""Characters that do something else than a reader of a diff sees."""

from __future__ import annotations

import re
from collections.abc import Iterable

BREAKS = (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029)
"""Control characters and everything that ends a line somewhere: Python, YAML and a terminal do not agree on which."""
REORDERING = (*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F, 0x061C)
"""Bidirectional marks: with them a text shows in another order than it is written in (CVE-2021-42574)."""
INVISIBLE = (
    *(0x00AD, 0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x180E, 0x2800, 0x3164, 0xFEFF, 0xFFA0),
    *(*range(0x200B, 0x200E), *range(0x2060, 0x2066), *range(0x206A, 0x2070), *range(0xFFF0, 0xFFFC)),
    *(*range(0x1D173, 0x1D17B), *range(0xE0000, 0xE0100)),
)
"""Joiners, fillers and tags: two texts that look the same are not, and a model reads what a person does not see."""


def _any_of(numbers: Iterable[int]) -> re.Pattern[str]:
    return re.compile(f"[{re.escape(''.join(map(chr, numbers)))}]")


_HIDDEN = _any_of({*BREAKS, *REORDERING} - {9, 10})
_UNSEEN = _any_of({*BREAKS, *REORDERING, *INVISIBLE, *range(0xD800, 0xE000)} - {9, 10})


def first_hidden(text: str) -> int | None:
    """Where the first break or mark of direction stands, tabs and line feeds aside; None where there is none."""
    found = _HIDDEN.search(text)
    return found.start() if found else None


def first_unseen(text: str) -> int | None:
    """The same, for a character that shows nothing at all too, or half of one (a lone surrogate)."""
    found = _UNSEEN.search(text)
    return found.start() if found else None


def without_hidden(text: str) -> str:
    """The text with a mark in place of each of them, tabs and line feeds aside."""
    return _HIDDEN.sub("\N{REPLACEMENT CHARACTER}", text)


__all__ = ["BREAKS", "INVISIBLE", "REORDERING", "first_hidden", "first_unseen", "without_hidden"]
