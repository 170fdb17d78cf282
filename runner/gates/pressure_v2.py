"""``pressure`` from version 2 on: nothing is faster than its floor, and both floors are told."""

from __future__ import annotations

from statistics import median

from runner.gates import pressure
from runner.gates.base import GateInput
from runner.gates.common import Decision, Reading, decide, figure, invalid, of_kind, verdict
from runner.model.desk_measure import PressureMeasure
from runner.model.verdict import Status, Verdict

NAME = "pressure"
VERSION = 2

Parameters = pressure.Parameters


def judge(given: GateInput) -> Verdict:
    """As version 1; INVALID also where a time lies below its floor: one of the two was not measured."""
    return verdict(
        NAME, VERSION, decide(Parameters, (PressureMeasure,), given, lambda *all_of: _decide(given, *all_of))
    )


def _decide(whole: GateInput, wanted: Parameters, readings: tuple[Reading, ...], given: GateInput) -> Decision:
    first = pressure.judge(whole)
    if first.status not in (Status.PASS, Status.FAIL):
        return Decision(first.status, first.reasons, first.figures)
    cases = [case for _, measure in of_kind(readings, PressureMeasure) for case in measure.cases]
    floors = {case.id: max(case.byte_floor_ns, case.decode_floor_ns) for case in cases}
    impossible = [
        f"{case.id}: {median(case.full_ns)} ns, and its floor is {floors[case.id]}: one of the two was not measured"
        for case in cases
        if median(case.full_ns) < floors[case.id]
    ]
    told = tuple(
        figure(f"{case.id} {words}", nanoseconds / 1e3, unit="µs")
        for case in cases
        for words, nanoseconds in (
            ("kernel", median(case.full_ns)),
            ("without decoding", median(case.null_ns)),
            ("bytes alone", case.byte_floor_ns),
            ("decoding alone", case.decode_floor_ns),
        )
    )
    return invalid(*impossible) if impossible else Decision(first.status, first.reasons, (*first.figures, *told))
