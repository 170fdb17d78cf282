"""JSON Schemas for outsiders, generated from the records and never written twice."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter

from runner.errors import InputError
from runner.model.order import Order
from runner.model.plan import Plan
from runner.model.seat import SeatManifest

_SHAPES: dict[str, Any] = {"order": Order, "seat": SeatManifest, "plan": Plan}


def json_schema(record: str) -> dict[str, Any]:
    """The schema of ``order``, ``seat`` or ``plan``. Raises InputError for another name."""
    if record not in _SHAPES:
        raise InputError("no such record", expected=", ".join(_SHAPES), found=record)
    return TypeAdapter(_SHAPES[record]).json_schema()
