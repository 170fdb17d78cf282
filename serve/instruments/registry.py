"""``name@version`` → instrument, and the digest of its source that the plan seals."""

from __future__ import annotations

import sys
from pathlib import Path

from runner.digest import sha256_file
from runner.errors import InputError
from serve.instruments.base import Instrument

_INSTRUMENTS: tuple[Instrument, ...] = ()


def all_instruments() -> tuple[Instrument, ...]:
    """Every instrument at every version, by name and version."""
    return _INSTRUMENTS


def parse(reference: str) -> tuple[str, int]:
    """``speed@1`` → ``("speed", 1)``. Raises InputError for anything else."""
    name, _, version = reference.partition("@")
    if not name or not version.isascii() or not version.isdigit():
        raise InputError(
            "an instrument is named with its version", where=reference, expected="name@version", found=reference
        )
    return name, int(version)


def instrument(name: str, version: int) -> Instrument:
    """One instrument. Raises InputError where this checkout has no such name and version."""
    for known in _INSTRUMENTS:
        if (name, version) == (known.NAME, known.VERSION):
            return known
    raise InputError(
        "unknown instrument",
        where=f"{name}@{version}",
        expected=", ".join(f"{known.NAME}@{known.VERSION}" for known in _INSTRUMENTS),
        found=f"{name}@{version}",
    )


def source_digest(known: Instrument) -> str:
    """SHA-256 of the instrument's source file."""
    return sha256_file(Path(str(sys.modules[known.reduce.__module__].__file__)))
