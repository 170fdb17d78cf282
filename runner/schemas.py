"""JSON Schemas for outsiders, generated from the records and never written twice."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter

from runner.attest.statement import TYPES
from runner.errors import InputError
from runner.model.craftsperson import Crew
from runner.model.evidence import Evidence
from runner.model.open_item import OpenItems
from runner.model.order import Order
from runner.model.order.review import ReviewFile
from runner.model.plan import Plan
from runner.model.report import Measured
from runner.model.seat import SeatManifest
from runner.model.statement import Statement

_RECORDS: dict[str, Any] = {
    "order": Order,
    "craftspeople": Crew,
    "reviews": ReviewFile,
    "open-items": OpenItems,
    "seat": SeatManifest,
    "plan": Plan,
    "record": Measured,
    "evidence": Evidence,
}
_STATEMENTS = {kind.split(":")[2]: kind for kind in TYPES}
"""``report``, ``intent``, ``adoption`` and so on, each to its predicate type."""

NAMES = (*_RECORDS, *_STATEMENTS)


def json_schema(name: str) -> dict[str, Any]:
    """The schema of a record, or of the payload of a signed statement. Raises InputError for another name."""
    if name in _RECORDS:
        return TypeAdapter(_RECORDS[name]).json_schema()
    if name not in _STATEMENTS:
        raise InputError("no such record", expected=", ".join(NAMES), found=name)
    return _payload_schema(_STATEMENTS[name])


def _payload_schema(kind: str) -> dict[str, Any]:
    """An in-toto statement whose predicate is the one of ``kind``."""
    statement = Statement.model_json_schema(mode="serialization", by_alias=True)
    predicate = TYPES[kind].model_json_schema()
    definitions = {**statement.pop("$defs"), **predicate.pop("$defs", {})}
    name = TYPES[kind].__name__
    statement["properties"]["predicateType"] = {"const": kind}
    statement["properties"]["predicate"] = {"$ref": f"#/$defs/{name}"}
    return statement | {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": kind,
        "title": name,
        "description": "The payload of the envelope: an in-toto Statement v1 in canonical JSON.",
        "required": list(statement["properties"]),
        "$defs": definitions | {name: predicate},
    }
