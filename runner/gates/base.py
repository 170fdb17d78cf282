"""What a gate is: a pure function from samples to a verdict."""

from __future__ import annotations

from typing import Protocol

from pydantic import JsonValue

from runner.model.base import Record
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


class GateParameters(Record):
    """Base of each gate's sealed parameters; numbers that decide are decimal text."""


class Gate(Protocol):
    """One file in this package each: ``NAME``, ``VERSION``, ``Parameters`` and ``judge``."""

    NAME: str
    VERSION: int
    Parameters: type[GateParameters]

    def judge(self, given: GateInput) -> Verdict:
        """Never raises for bad evidence: that is INVALID with a reason."""
        ...
