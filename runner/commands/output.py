"""How every command answers: JSON on standard output with ``--json``, text otherwise."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Answer in JSON.")]


def answer(value: Any, text: str, *, as_json: bool) -> None:
    """Print one answer."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False, indent=2) if as_json else text.rstrip("\n"))
    sys.stdout.write("\n")
