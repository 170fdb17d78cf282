"""What the order tells its reader: facts with labels, rulings, inputs and what has to be read."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import model_validator

from runner.model.base import Record, Slug
from runner.model.order.probe import Probe
from runner.model.scalars import Flag, Line, Number, Pin, Whole


class FactEvidence(Record):
    """Where a fact comes from."""

    file: Line | None = None
    line: Whole | None = None
    command: Line | None = None
    date: Line | None = None
    order: Slug | None = None
    """Another order, a survey for example, whose fact this is."""
    fact: Slug | None = None
    """Its id there. The check reads that order: value and unit have to be the same, and it has to stand there."""

    @model_validator(mode="after")
    def _cites_a_fact_of_an_order(self) -> Self:
        if (self.order is None) != (self.fact is None):
            raise ValueError("a citation names an order and one of its facts")
        return self


class Fact(Record):
    """One statement with its standing. An assumed value quoted as measured is the mistake this record prevents."""

    id: Slug
    statement: Line
    value: Number | None = None
    unit: Line | None = None
    label: Literal["measured", "estimate", "assumed"]
    scope: Line = "everywhere"
    """Where it holds, for example ``even layers only``."""
    evidence: FactEvidence | None = None
    policy: Literal["do-not-rederive", "must-verify"] = "must-verify"
    status: Literal["standing", "refuted", "superseded"] = "standing"
    superseded_by: Slug | None = None
    probe: Probe | None = None
    """Derives it again at every check."""


class Claim(Record):
    """What one side of a ruling said."""

    who: Line
    value: Line


class Ruling(Record):
    """A question that was settled, and how."""

    question: Line
    claims: tuple[Claim, ...] = ()
    ruling: Line
    evidence: Line | None = None


class Reading(Record):
    """A file the craftsperson reads."""

    file: Line
    lines: Line | None = None
    why: Line
    must_read_full: Flag = False
    part_of_order: Flag = False


class OrderInput(Record):
    """Something the work starts from."""

    name: Slug
    path: Line
    revision: Pin | None = None
    readonly: Flag = True
    state: Literal["present", "arriving"] = "present"
    index_path: Line | None = None
    shard_map: dict[str, Line] = {}
    transfer: Literal["none", "range", "whole"] = "none"
    bytes: Whole | None = None


class Deliverable(Record):
    """A file the work leaves."""

    path: Line
    type: Literal["source", "test", "report", "note", "pack", "tool"]
    must_contain: tuple[Line, ...] = ()
