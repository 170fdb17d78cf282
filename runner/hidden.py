"""Characters that do something else than a reader of a diff sees."""

from __future__ import annotations

import re

BREAKS = (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029)
"""Control characters and everything that ends a line somewhere: Python, YAML and a terminal do not agree on which."""
REORDERING = (*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F, 0x061C)
"""Bidirectional marks: with them a text shows in another order than it is written in (CVE-2021-42574)."""

_HIDDEN = re.compile(f"[{re.escape(''.join(map(chr, (*BREAKS, *REORDERING))).translate({9: None, 10: None}))}]")


def first_hidden(text: str) -> int | None:
    """Where the first of them stands, tabs and line feeds aside; None where there is none."""
    found = _HIDDEN.search(text)
    return found.start() if found else None


def without_hidden(text: str) -> str:
    """The text with a mark in place of each of them, tabs and line feeds aside."""
    return _HIDDEN.sub("\N{REPLACEMENT CHARACTER}", text)


__all__ = ["BREAKS", "REORDERING", "first_hidden", "without_hidden"]
