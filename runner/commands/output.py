"""How every command answers: JSON on standard output with ``--json``, text otherwise."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer

from runner.visible import visible

AsJson = Annotated[bool, typer.Option("--json", help="Answer in JSON.")]


def answer(value: Any, text: str, *, as_json: bool) -> None:
    """Print one answer. What steers a terminal is written out, whoever wrote it."""
    shown = json.dumps(value, ensure_ascii=False, indent=2) if as_json else visible(text.rstrip("\n"), keep="\n")
    sys.stdout.write(shown)
    sys.stdout.write("\n")
