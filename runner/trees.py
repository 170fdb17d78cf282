"""Folders that a session may have left in any shape: walked without recursion, and removed whatever lies in them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

DEEPEST = 200
"""Folders below one another. Nobody's work goes so deep, and a path of so many names is still one for the kernel."""


def walk(top: Path, enters: Callable[[Path], bool] = lambda _: True) -> Iterator[Path]:
    """Everything below ``top`` that is no folder, links not followed, and the folders that lie too deep to be entered.

    ``enters`` says which folder is looked into. What vanishes meanwhile, or may not be read, is left out.
    """
    waiting = [(top, 0)]
    while waiting:
        folder, depth = waiting.pop()
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    path = folder / entry.name
                    if not entry.is_dir(follow_symlinks=False) or depth == DEEPEST:
                        yield path
                    elif enters(path):
                        waiting.append((path, depth + 1))
        except OSError:
            continue


def too_deep(top: Path) -> Path | None:
    """The first folder below ``top`` that nobody enters."""
    depth = len(top.parts) + DEEPEST
    return next((path for path in walk(top) if len(path.parts) > depth and path.is_dir()), None)


def remove(folder: Path) -> None:
    """Remove a folder of any depth, one that its maker closed too; nothing where there is none."""
    for words in (("rm", "-rf"), ("chmod", "-R", "u+rwX"), ("rm", "-rf")):
        if os.path.lexists(folder):
            subprocess.run([*words, "--", str(folder)], check=False, capture_output=True)


__all__ = ["DEEPEST", "remove", "too_deep", "walk"]
