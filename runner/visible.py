"""Text from orders, engines and craftspeople, shown so that it is what it looks like."""

from __future__ import annotations

import json
import re
import unicodedata
from typing import Any

from runner.errors import CarveError

_HIDDEN = ("Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp")
"""Control, formatting (of direction too), unassigned and private characters, breaks of lines and paragraphs."""
_BLANKS = "\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0"
"""Joiners and fillers: letters and marks by category that show nothing."""


def visible(text: str, keep: str = "") -> str:
    """Characters that show nothing, or steer a terminal or a page, written out; those in ``keep`` stay."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(one if one in keep or not _hidden(one) else _written(one) for one in text.replace("\t", " "))


def told(error: CarveError) -> str:
    """An error for a terminal, whoever wrote what it tells: no text in it begins a line of its own.

    A label is followed by its text; the further lines of a text that has several are indented below it.
    """
    labelled = (
        ("  where: ", visible(error.where)),
        ("  expected: ", error.expected),
        ("  found: ", error.found),
        ("  next step: ", error.next_step),
    )
    return "\n".join(label + _indented(text) for label, text in (("", error.what), *labelled) if text or not label)


def as_json(value: Any, indent: int | None = None) -> str:
    """JSON for a terminal: what shows nothing or steers is escaped, and reads back as the same text."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    return re.sub(r"[^\n -~]", lambda one: json.dumps(one[0])[1:-1] if _hidden(one[0]) else one[0], text)


def _indented(text: str) -> str:
    first, *more = visible(text, keep="\n").split("\n")
    indent = "" if all(line.startswith("    ") for line in more) else "    "
    return "\n".join([first, *(indent + line for line in more)])


def shortened(text: str, most: int = 2000) -> str:
    """``text``, but for what is beyond ``most`` characters: the history of nine attempts has to fit into a report."""
    return text if len(text) <= most else f"{text[:most]} … and {len(text) - most} characters more"


def _hidden(one: str) -> bool:
    return unicodedata.category(one) in _HIDDEN or one in _BLANKS


def _written(one: str) -> str:
    return f"\\u{ord(one):04x}"


__all__ = ["as_json", "shortened", "told", "visible"]
