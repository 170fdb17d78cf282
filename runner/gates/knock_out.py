"""``knock-out``: with the candidate's library replaced, strict refuses (declines) or the output changes (zeros)."""

from __future__ import annotations

import re

from runner.gates.base import GateInput
from runner.gates.common import Decision, Reading, by_limits, decide, invalid, of_kind, verdict
from runner.gates.shift import ShiftParameters, shift_failures
from runner.model.sample import RefusalMeasure, ShiftMeasure
from runner.model.verdict import Figure, Verdict

NAME = "knock-out"
VERSION = 1

_DECLINE = re.compile(r"declin|not ready|not-ready", re.IGNORECASE)
"""A refusal for this reason; a boot that died of anything else refused nothing."""


class Parameters(ShiftParameters):
    """How far the zeros must move each rank's output."""


def judge(given: GateInput) -> Verdict:
    """FAIL where a library that does nothing goes unnoticed; INVALID unless both knock-outs were tried."""
    return verdict(NAME, VERSION, decide(Parameters, (RefusalMeasure, ShiftMeasure), given, _decide))


def _decide(wanted: Parameters, readings: tuple[Reading, ...], given: GateInput) -> Decision:
    refusals, shifts = of_kind(readings, RefusalMeasure), of_kind(readings, ShiftMeasure)
    if not refusals or not shifts:
        return invalid("both knock-outs are needed: one that declines and one that writes zeros")
    failures: list[str] = []
    figures: list[Figure] = []
    for reading, refusal in refusals:
        name = reading.window.id
        figures.append(Figure(name=f"{name} refusal", value=refusal.reason[:300]))
        if not refusal.refused:
            failures.append(f"{name}: strict let a library through that declines every call")
        elif not _DECLINE.search(refusal.reason):
            return invalid(f"{name}: the boot ended for another reason: {refusal.reason[:300]}")
    for reading, _ in shifts:
        idle = _ranks_without(reading)
        if idle:
            return invalid(*(f"{reading.window.id}: rank {rank} never called the zeros" for rank in idle))
    found, seen = shift_failures(wanted, readings, given)
    return by_limits([*failures, *found], (*figures, *seen), "a library that does nothing is noticed on every rank")


def _ranks_without(reading: Reading) -> list[int]:
    """Ranks on which the witness saw no call of the knocked-out variant."""
    variant = reading.window.arguments.get("variant")
    return [
        one.rank
        for one in reading.sample.engagement
        if not any(row.variant == variant and row.launches > 0 for row in one.witness)
    ]
