"""Markdown that reads the same wherever a text came from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_ESCAPED = str.maketrans({"|": "&#124;", "<": "&lt;", "`": "'", "\n": " ", "\r": " "})
"""A backslash before a bar would escape nothing where the text has one before it already."""


def cell(value: object) -> str:
    """One table cell or list entry: no text can leave it or bring markup into the page."""
    return str(value).translate(_ESCAPED).replace("![", "! [")  # no picture from elsewhere


def table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """Lines of a table, and one empty line after it; nothing at all where there are no rows."""
    body = ["| " + " | ".join(cell(value) for value in row) + " |" for row in rows]
    if not body:
        return []
    return ["| " + " | ".join(headers) + " |", "|" + " --- |" * len(headers), *body, ""]


__all__ = ["cell", "table"]
