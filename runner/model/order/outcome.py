"""What came of an order that was carried out by hand before this runner: history, never a verdict."""

from __future__ import annotations

from typing import Literal

from runner.model.base import Record, Slug
from runner.model.scalars import Line


class GateOutcome(Record):
    """One gate as its report told it."""

    gate: Slug
    status: Literal["pass", "fail", "conditional", "not-run", "vacuous"]
    """``vacuous``: it passed without the thing under test having run."""
    value: Line | None = None
    label: Literal["measured", "estimate", "assumed"] = "measured"
    evidence: Line | None = None


class RecordedWaiver(Record):
    """A gate that was let go, by whom and why."""

    gate: Slug
    by: Line
    reason: Line


class RecordedDecision(Record):
    """What a person decided."""

    by: Line
    date: Line
    decision: Literal["adopt", "hold", "drop"]
    configuration: Line | None = None


class Outcome(Record):
    """All of it. Only a signed report of this runner can be adopted; nothing here counts for that."""

    gates: tuple[GateOutcome, ...] = ()
    waivers: tuple[RecordedWaiver, ...] = ()
    decision: RecordedDecision | None = None
    excluded: tuple[Line, ...] = ()
    open_items: tuple[Line, ...] = ()
