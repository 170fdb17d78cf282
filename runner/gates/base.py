"""What a gate is: a pure function from samples to a verdict."""

from __future__ import annotations

from typing import Annotated, Protocol

from pydantic import BeforeValidator, JsonValue

from runner.model.base import DecimalText, Record
from runner.model.boot import BootRecord
from runner.model.plan import PlannedBoot, PlannedWindow
from runner.model.sample import Sample
from runner.model.verdict import Verdict


class GateInput(Record):
    """All that a gate may read. ``windows`` are the planned ones, so a missing sample shows as a window without one."""

    parameters: dict[str, JsonValue]
    planned_boots: tuple[PlannedBoot, ...]
    windows: tuple[PlannedWindow, ...]
    samples: tuple[Sample, ...]
    boots: tuple[BootRecord, ...]


def _as_text(value: object) -> object:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


Limit = Annotated[DecimalText, BeforeValidator(_as_text)]
"""A number that decides: decimal text, or a whole number as an order writes it."""


class GateParameters(Record):
    """Base of each gate's sealed parameters; numbers that decide are decimal text."""


class Gate(Protocol):
    """One file in this package each: ``NAME``, ``VERSION``, ``Parameters`` and ``judge``."""

    @property
    def NAME(self) -> str:
        """The gate's name."""
        ...

    @property
    def VERSION(self) -> int:
        """A released version never changes its meaning."""
        ...

    @property
    def Parameters(self) -> type[GateParameters]:
        """What an order may set."""
        ...

    def judge(self, given: GateInput) -> Verdict:
        """Never raises for bad evidence: that is INVALID with a reason."""
        ...
