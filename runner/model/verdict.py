"""What a gate decided."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from runner.model.base import Record, Slug


class Status(StrEnum):
    """Only PASS lets a report be adopted; the other four differ and all block."""

    PASS = "PASS"
    FAIL = "FAIL"
    UNRESOLVED = "UNRESOLVED"
    INVALID = "INVALID"
    NOT_RUN = "NOT_RUN"

    @property
    def exit_code(self) -> int:
        """0 pass, 1 a gate failed, 2 could not decide."""
        return {Status.PASS: 0, Status.FAIL: 1}.get(self, 2)


def overall(statuses: Iterable[Status]) -> Status:
    """One status for a whole report: FAIL decides, then INVALID, UNRESOLVED, NOT_RUN; no gate at all is NOT_RUN."""
    seen = set(statuses)
    order = (Status.FAIL, Status.INVALID, Status.UNRESOLVED, Status.NOT_RUN, Status.PASS)
    return next((status for status in order if status in seen), Status.NOT_RUN)


class Figure(Record):
    """One number the verdict rests on, as decimal text, with its limit."""

    name: str
    value: str
    unit: str = ""
    limit: str = ""


class Verdict(Record):
    """A gate's answer; recomputable from the samples in the report."""

    gate: Slug
    version: int
    status: Status
    reasons: tuple[str, ...]
    """Why, in sentences that name boot, rank, layer or document."""
    figures: tuple[Figure, ...] = ()
