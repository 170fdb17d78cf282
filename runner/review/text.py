"""Text for a terminal that nothing in it can steer."""

from __future__ import annotations

from typing import Any

from rich import text as rich_text

from runner.visible import visible


class Text(rich_text.Text):
    """As rich's, never read as markup, with characters that show nothing written out."""

    def __init__(self, text: str = "", *arguments: Any, **options: Any) -> None:
        super().__init__(visible(text, keep="\n"), *arguments, **options)


__all__ = ["Text"]
