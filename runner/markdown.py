"""Markdown that reads the same wherever a text came from."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from runner.hidden import BREAKS, INVISIBLE, REORDERING

_ONE_LINE = dict.fromkeys((*BREAKS, *REORDERING, *INVISIBLE), " ")
_ESCAPED = _ONE_LINE | str.maketrans({"|": "&#124;", "<": "&lt;", "`": "'"})
"""A backslash before a bar would escape nothing where the text has one before it already."""


_LINK = re.compile(r"\]\((?!\.\./reports/[a-z0-9.\-]+/[a-z0-9.\-]+/report\.md\))")
"""What makes a link, but for the ones that the canon writes itself."""


_PLAIN = re.compile(r"[A-Za-z0-9 _.,:;@/()=+%-]*")
"""Text that is a cell as it stands: nearly all of it, and telling so is quicker than looking for each exception."""


def one_line(text: str) -> str:
    """The text on one line, each character where it is read."""
    return text.translate(_ONE_LINE)


def cell(value: object) -> str:
    """One table cell or list entry: no text can leave it or bring markup into the page."""
    text = str(value)
    if _PLAIN.fullmatch(text):
        return text
    return _LINK.sub(r"] (", text.translate(_ESCAPED)).replace("![", "! [")  # no picture and no link elsewhere


def run_link(order: str, run: str) -> str:
    """The run's id as a link from ``canon/``; names of orders and runs hold nothing that Markdown reads."""
    return f"[{run}](../reports/{order}/{run}/report.md)"


def table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """Lines of a table, and one empty line after it; nothing at all where there are no rows."""
    body = ["| " + " | ".join(cell(value) for value in row) + " |" for row in rows]
    if not body:
        return []
    return ["| " + " | ".join(headers) + " |", "|" + " --- |" * len(headers), *body, ""]


__all__ = ["cell", "one_line", "run_link", "table"]
