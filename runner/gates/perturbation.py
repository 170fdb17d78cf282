"""``perturbation``: one expert's scale, changed on one rank by a drawn factor, must move the output as predicted."""

from __future__ import annotations

from runner.gates.base import GateInput, Limit
from runner.gates.common import Decision, Reading, by_limits, decide, figure, invalid, of_kind, verdict
from runner.gates.shift import ShiftParameters, shift_failures
from runner.model.sample import ShiftMeasure
from runner.model.verdict import Verdict

NAME = "perturbation"
VERSION = 1


class Parameters(ShiftParameters):
    """How far the change must move each rank's output, and how well a reference forward must predict it."""

    error: Limit = "0.1"
    """Largest error of the prediction: root mean square of (observed − predicted) over that of the prediction."""
    predicted: bool = False
    """Whether a reading without a prediction is INVALID."""


def judge(given: GateInput) -> Verdict:
    """FAIL for a rank whose output ignores the change or moves otherwise than the reference forward says."""
    return verdict(NAME, VERSION, decide(Parameters, (ShiftMeasure,), given, _decide))


def _decide(wanted: Parameters, readings: tuple[Reading, ...], given: GateInput) -> Decision:
    failures, figures = shift_failures(wanted, readings, given)
    for reading, shift in of_kind(readings, ShiftMeasure):
        for rank in shift.ranks:
            if rank.error is None:
                if wanted.predicted:
                    return invalid(f"{reading.window.id}: no prediction for rank {rank.rank}")
                continue
            name = f"{reading.window.id} rank {rank.rank} prediction error"
            figures.append(figure(name, float(rank.error), limit=f"<= {wanted.error}"))
            if float(rank.error) > float(wanted.error):
                failures.append(f"{name} is {rank.error}, the limit {wanted.error}")
    return by_limits(failures, tuple(figures), "the change shows on every rank")
