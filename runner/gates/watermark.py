"""``watermark``: a deliberately wrong build of the variant, on one rank at a time, must change the output."""

from __future__ import annotations

from runner.gates.base import GateInput
from runner.gates.common import Decision, Reading, by_limits, decide, verdict
from runner.gates.shift import ShiftParameters, shift_failures
from runner.model.sample import ShiftMeasure
from runner.model.verdict import Verdict

NAME = "watermark"
VERSION = 1


class Parameters(ShiftParameters):
    """How far the wrong build must move each rank's output."""


def judge(given: GateInput) -> Verdict:
    """FAIL for a rank whose output does not care which build runs."""
    return verdict(NAME, VERSION, decide(Parameters, (ShiftMeasure,), given, _decide))


def _decide(wanted: Parameters, readings: tuple[Reading, ...], given: GateInput) -> Decision:
    failures, figures = shift_failures(wanted, readings, given)
    return by_limits(failures, tuple(figures), "the wrong build shows on every rank")
