"""End a piece of work at one of its calls that change the disk, as a kill or a full disk would."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recipe import pack_write


class Killed(BaseException):
    """Stands for the end of the process at one system call."""


def killing(monkeypatch: pytest.MonkeyPatch, point: int, error: Callable[[], BaseException]) -> Callable[[], int]:
    """End the work at call ``point`` of whatever changes the disk; gives a count of the calls so far."""
    calls = itertools.count()
    seen = [0]

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            seen[0] = next(calls)
            if seen[0] == point:
                raise error()
            return real(*arguments, **options)

        return call

    for holder, name in (
        (Path, "replace"), (Path, "mkdir"), (Path, "unlink"), (Path, "write_text"), (Path, "chmod"),
        (pack_write, "save_file"), (shutil, "copyfile"), (os, "fsync"),
    ):  # fmt: skip
        monkeypatch.setattr(holder, name, counted(getattr(holder, name)))
    return lambda: seen[0]
