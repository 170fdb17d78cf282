"""Requested against resolved configuration, field by field, as text."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import JsonValue

from runner.digest import canonical_json
from runner.model.sample import FieldPair

ABSENT = "(absent)"


def pairs(requested: Mapping[str, JsonValue], resolved: Mapping[str, JsonValue]) -> tuple[FieldPair, ...]:
    """One pair for each requested name; a name the engine does not answer for is absent, which is not equal."""
    return tuple(
        FieldPair(
            name=name,
            requested=text(requested[name]),
            resolved=text(resolved[name]) if name in resolved else ABSENT,
        )
        for name in sorted(requested)
    )


def text(value: JsonValue) -> str:
    """Words stay as they are; everything else is canonical JSON."""
    return value if isinstance(value, str) else canonical_json(value).decode()
