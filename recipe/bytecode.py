"""What an interpreter runs in the place of a module's file, without a look at what the file says."""

from __future__ import annotations

import glob
import importlib.util
import marshal
import re
import sys
from collections.abc import Iterator
from importlib.machinery import EXTENSION_SUFFIXES, all_suffixes
from pathlib import Path

_HEAD = 16
"""Bytes before the code: magic number, flags, and a time with a size or a hash."""
_OPTIMISED = re.compile(r"\.opt-(\d)\.pyc$")


def beside(file: Path) -> list[Path]:
    """What interpreters have compiled of ``file``, and what bears such a name."""
    return sorted(file.parent.glob(f"__pycache__/{glob.escape(file.stem)}.*.pyc"))


def instead_of(file: Path) -> Iterator[Path]:
    """What this interpreter would run in the place of a Python file.

    A package or a library of its name, and bytecode of other code. Bytecode is compared as code, since the same code
    may be stored in several ways. That of other interpreters is theirs to judge.
    """
    package = [file.parent / file.stem / f"__init__{suffix}" for suffix in all_suffixes()]
    libraries = [file.parent / f"{file.stem}{suffix}" for suffix in EXTENSION_SUFFIXES]
    yield from (path for path in (*package, *libraries) if path.exists())
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
