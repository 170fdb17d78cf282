"""Text from orders, engines and craftspeople, shown so that it is what it looks like."""

from __future__ import annotations

import unicodedata

_HIDDEN = ("Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp")
"""Control, formatting (of direction too), unassigned and private characters, breaks of lines and paragraphs."""
_BLANKS = "\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0"
"""Joiners and fillers: letters and marks by category that show nothing."""


def visible(text: str, keep: str = "") -> str:
    """Characters that show nothing, or steer a terminal or a page, written out; those in ``keep`` stay."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(one if one in keep or not _hidden(one) else _written(one) for one in text.replace("\t", " "))


def _hidden(one: str) -> bool:
    return unicodedata.category(one) in _HIDDEN or one in _BLANKS


def _written(one: str) -> str:
    return f"\\u{ord(one):04x}"


__all__ = ["visible"]
