"""How every command answers: JSON on standard output with ``--json``, text otherwise."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from runner.visible import as_json as visible_json
from runner.visible import visible

if TYPE_CHECKING:
    from rich.table import Table

_UNBROKEN = 10_000
"""Columns of a line that nobody looks at in a terminal: nothing is broken for it."""
_READABLE = 24
"""Columns below which prose cannot be read."""

AsJson = Annotated[bool, typer.Option("--json", help="Answer in JSON.")]


def answer(value: Any, text: str, *, as_json: bool) -> None:
    """Print one answer. What steers a terminal is written out, whoever wrote it."""
    shown = visible_json(value, indent=2) if as_json else visible(text.rstrip("\n"), keep="\n")
    sys.stdout.write(shown)
    sys.stdout.write("\n")


def print_table(table: Table) -> None:
    """Print a table without breaking a word of it, or anything in a column with ``no_wrap``, which people copy.

    A terminal that is too narrow breaks the line itself, and copies it whole; for a pipe nothing is broken at all.
    """
    from rich.console import Console
    from rich.measure import Measurement

    console = Console()
    width = _UNBROKEN
    if console.is_terminal:
        options = console.options.update(max_width=_UNBROKEN)
        whole = [
            max((Measurement.get(console, options, cell).maximum for cell in column.cells), default=0)
            for column in table.columns
        ]
        least = [
            each if column.no_wrap else min(each, _READABLE) for column, each in zip(table.columns, whole, strict=True)
        ]
        width = max(console.width, sum(least) + 2 * len(least))
    Console(width=width).print(table)
