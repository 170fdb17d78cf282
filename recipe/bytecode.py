"""Bytecode beside a module that is of other code: an interpreter runs it without a look at what the file says."""

from __future__ import annotations

import glob
import importlib.util
import marshal
import re
import sys
from collections.abc import Iterator
from pathlib import Path

_HEAD = 16
"""Bytes before the code: magic number, flags, and a time with a size or a hash."""
_OPTIMISED = re.compile(r"\.opt-(\d)\.pyc$")


def beside(file: Path) -> list[Path]:
    """What interpreters have compiled of ``file``, and what bears such a name."""
    return sorted(file.parent.glob(f"__pycache__/{glob.escape(file.stem)}.*.pyc"))


def of_other_code(file: Path) -> Iterator[Path]:
    """What lies :func:`beside` a Python file and that this interpreter would run in the place of what it says.

    Compared as code, since the same code may be stored in several ways. That of other interpreters is theirs to judge.
    """
    for cached in beside(file):
        content = cached.read_bytes()
        ours = cached.name.startswith(f"{file.stem}.{sys.implementation.cache_tag}.")
        if ours and content[:4] == importlib.util.MAGIC_NUMBER and not _same(file, cached, content):
            yield cached


def _same(file: Path, cached: Path, content: bytes) -> bool:
    level = found[1] if (found := _OPTIMISED.search(cached.name)) else "0"
    try:
        code = compile(file.read_bytes(), str(file), "exec", dont_inherit=True, optimize=int(level))
        return bool(marshal.loads(content[_HEAD:]) == code)
    except (EOFError, SyntaxError, TypeError, ValueError):  # no code at all, on either side
        return False
