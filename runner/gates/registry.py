"""``name@version`` → gate, its parameters' schema, the digest of its source, and what has been withdrawn."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from runner.digest import sha256_file
from runner.errors import InputError
from runner.gates.base import Gate

_GATES: tuple[Gate, ...] = ()


def all_gates() -> tuple[Gate, ...]:
    """Every gate at every version, in the order in which a report lists them."""
    return _GATES


def gate(name: str, version: int) -> Gate:
    """One gate. Raises InputError where this checkout has no such name and version."""
    for known in _GATES:
        if (name, version) == (known.NAME, known.VERSION):
            return known
    raise InputError(
        "unknown gate",
        where=f"{name}@{version}",
        expected=", ".join(f"{known.NAME}@{known.VERSION}" for known in _GATES),
        found=f"{name}@{version}",
        next_step="`runner gates` lists the gates of this checkout",
    )


def parameter_schema(known: Gate) -> dict[str, Any]:
    """JSON Schema of the gate's parameters, with the field docstrings as descriptions."""
    return known.Parameters.model_json_schema()


def source_digest(known: Gate) -> str:
    """SHA-256 of the gate's source file."""
    return sha256_file(Path(str(sys.modules[known.judge.__module__].__file__)))
