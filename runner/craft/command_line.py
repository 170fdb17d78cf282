"""Whether a craftsperson's command line can be started at all, asked before an attempt is spent on it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from runner.craft.crew import FILE
from runner.craft.sandbox import SYSTEM
from runner.errors import StateError
from runner.model.craftsperson import CraftspersonEntry
from runner.sandbox import python_folders

NOT_RUN = (126, 127)
"""Exit codes by which a shell says that a command cannot be executed, or is not there."""


def require_command(name: str, entry: CraftspersonEntry, workspace: Path, checkout: Path, *, sandboxed: bool) -> None:
    """Raises StateError where the first word of ``argv`` is no command that the session could start."""
    word = entry.argv[0].replace("{clone}", str(checkout))
    where, expected = f"{workspace / FILE}: {name}: argv", "an executable file"
    if "/" in word:
        path = checkout / word  # the clone has what the checkout has
        if not path.is_file():
            _refuse(where, expected, f"{word}, which is not there", "name a command that exists")
        if not os.access(path, os.X_OK):
            _refuse(where, expected, f"{word}, which may not be executed", f"chmod +x {path}")
    else:
        found = shutil.which(word)
        if found is None:
            _refuse(where, expected, f"{word}, which no folder of PATH has", "install it, or write its whole path")
        path = Path(found)
    if not sandboxed:
        return
    shown = [*_shown(entry), checkout]
    for one in dict.fromkeys((path.absolute(), path.resolve())):
        if not any(one.is_relative_to(folder) for folder in shown):
            step = f"add its folder to the entry: readable: [{one.parent}]"
            _refuse(where, "a command that the sandbox shows", f"{one}, which it does not show", step)


def _shown(entry: CraftspersonEntry) -> Iterator[Path]:
    yield from map(Path, SYSTEM)
    yield from python_folders()
    for text in entry.readable:
        path = Path(text).expanduser()
        yield from (path.absolute(), path.resolve())


def _refuse(where: str, expected: str, found: str, next_step: str) -> NoReturn:
    raise StateError(
        "the craftsperson's command cannot be started", where=where, expected=expected, found=found, next_step=next_step
    )


__all__ = ["NOT_RUN", "require_command"]
