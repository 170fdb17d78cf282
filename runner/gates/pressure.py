"""``pressure``: how far a kernel lies above the larger of its two floors, bytes and decoding."""

from __future__ import annotations

from statistics import median

from runner.gates.base import GateInput, GateParameters, Limit
from runner.gates.common import Decision, Reading, by_limits, decide, figure, invalid, of_kind, verdict
from runner.model.desk_measure import PressureCase, PressureMeasure
from runner.model.verdict import Verdict

NAME = "pressure"
VERSION = 1


class Parameters(GateParameters):
    """Campaign gates E2 and E5."""

    bits: tuple[int, ...]
    """K that must have been measured ..."""
    rows: tuple[int, ...]
    """... at each of these row counts."""
    over_floor: Limit
    """Largest median time over the larger floor."""
    relative_error: Limit = "2e-3"
    """Largest error of the full build."""
    null_error: Limit = "0.1"
    """Least error of the build that decodes nothing: if it were right, it would be decoding."""


def judge(given: GateInput) -> Verdict:
    """FAIL beyond the limit; INVALID where a case is missing or the null build is no null build."""
    return verdict(NAME, VERSION, decide(Parameters, (PressureMeasure,), given, _decide))


def _decide(wanted: Parameters, readings: tuple[Reading, ...], given: GateInput) -> Decision:
    cases = [case for _, measure in of_kind(readings, PressureMeasure) for case in measure.cases]
    measured = {(case.bits, case.rows) for case in cases}
    needed = [(bits, rows) for bits in wanted.bits for rows in wanted.rows]
    faults = [f"K {bits} at {rows} rows: not measured" for bits, rows in needed if (bits, rows) not in measured]
    for case in cases:
        faults += _faults(case, wanted)
    if faults:
        return invalid(*faults)
    failures, figures = [], []
    for case in cases:
        floor = max(case.byte_floor_ns, case.decode_floor_ns)
        over = median(case.full_ns) / floor
        if over > float(wanted.over_floor):
            failures.append(f"{case.id}: {over:.2f} times its floor of {floor} ns, the limit {wanted.over_floor}")
        figures += [
            figure(f"{case.id} over its floor", over, limit=f"<= {wanted.over_floor}"),
            figure(f"{case.id} without decoding over its floor", median(case.null_ns) / floor),
        ]
    return by_limits(failures, tuple(figures), "every case lies near its floor")


def _faults(case: PressureCase, wanted: Parameters) -> list[str]:
    checks = (
        (bool(case.full_ns) and bool(case.null_ns), "no replay was timed"),
        (case.byte_floor_ns > 0 and case.decode_floor_ns > 0, "the card's ceilings were not measured"),
        (float(case.full_error) <= float(wanted.relative_error), f"the full build is wrong by {case.full_error}"),
        (
            float(case.null_error) >= float(wanted.null_error),
            f"the null build is right to {case.null_error}: it decodes",
        ),
    )
    return [f"{case.id}: {message}" for held, message in checks if not held]
