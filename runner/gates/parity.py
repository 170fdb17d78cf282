"""``parity``: the variant's operators against the reference forward, on the desk."""

from __future__ import annotations

from runner.gates.base import GateInput, GateParameters, Limit
from runner.gates.common import Decision, Reading, by_limits, decide, figure, invalid, of_kind, verdict
from runner.model.desk_measure import ParityCase, ParityMeasure
from runner.model.verdict import Verdict

NAME = "parity"
VERSION = 1


class Parameters(GateParameters):
    """Limits on fp32 output (campaign section 5.2); with another output type they mean something else."""

    relative_error: Limit = "2e-3"
    """Largest ‖out − ref‖ / ‖ref‖ of any row."""
    norm_ratio: tuple[Limit, Limit] = ("0.99", "1.01")
    """Least and largest ‖out‖ / ‖ref‖ of any row: half of k dropped shows as 0.755 (FL-12)."""
    rows: tuple[int, ...] = ()
    """Row counts that the cases must cover without a decline."""
    cases: int = 1
    """Fewest cases that ran without a decline."""
    allowed_declines: tuple[str, ...] = ("rows-above-limit",)
    """Typed reasons a case may be declined for; such a case proves nothing."""


def judge(given: GateInput) -> Verdict:
    """FAIL for any case outside a limit; INVALID where the cases do not cover what the order asks."""
    return verdict(NAME, VERSION, decide(Parameters, (ParityMeasure,), given, _decide))


def _decide(wanted: Parameters, readings: tuple[Reading, ...], given: GateInput) -> Decision:
    cases = [case for _, measure in of_kind(readings, ParityMeasure) for case in measure.cases]
    ran = [case for case in cases if not case.declined]
    failures = [
        f"{case.id}: declined {case.declined}"
        for case in cases
        if case.declined and case.declined not in wanted.allowed_declines
    ]
    for case in ran:
        failures += _failures(case, wanted)
    uncovered = sorted(set(wanted.rows) - {case.rows for case in ran})
    if not failures and (uncovered or len(ran) < max(wanted.cases, 1)):
        return invalid(f"{len(ran)} cases ran, {wanted.cases} were asked for; rows not covered: {uncovered}")
    figures = (
        figure("cases", len(ran)),
        figure("worst relative error", _worst(ran), limit=f"<= {wanted.relative_error}"),
    )
    return by_limits(failures, figures, "every case lies inside the limits")


def _worst(ran: list[ParityCase]) -> float:
    return max((float(case.relative_error) for case in ran if case.finite), default=0.0)


def _failures(case: ParityCase, wanted: Parameters) -> list[str]:
    low, high = wanted.norm_ratio
    checks = (
        (case.finite, "the output is not finite"),
        (case.repeat_equal, "the same call twice gave two outputs"),
        (
            float(case.relative_error) <= float(wanted.relative_error),
            f"relative error {case.relative_error}, the limit {wanted.relative_error}",
        ),
        (float(low) <= float(case.norm_ratio) <= float(high), f"norm ratio {case.norm_ratio} outside {low} .. {high}"),
    )
    return [f"{case.id} ({case.rows} rows, {case.bits} bits): {message}" for held, message in checks if not held]
