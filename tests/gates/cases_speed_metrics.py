"""Cases of ``speed`` from version 2 on: two declared metrics, read from the same seven quads."""

from __future__ import annotations

from typing import Any

from runner.gates.base import GateInput
from runner.model.base import decimal_text
from runner.model.sample import SpeedMeasure
from tests.gates.build import CANDIDATE, INCUMBENT, Case, given
from tests.gates.cases_speed import ORDERS, ROLES, Readings, alone, edited, quads, thin

SEVEN = (*ORDERS, "ABBA")
"""The fewest quads that carry two metrics: 2^(1-7) is at most 0.05 / 2."""
Outcome = tuple[float, float]
"""What the candidate gains in one stream's rate, and in the rate of all streams."""


def gained(gains: Outcome, orders: tuple[str, ...] = SEVEN) -> Readings:
    """Quads of a candidate that gains so much."""
    readings: Readings = []
    for planned, taken in quads(gains[0], orders=orders):
        assert isinstance(taken.measure, SpeedMeasure)
        own = gains if taken.variant == CANDIDATE else (1.0, 1.0)
        rate = float(taken.measure.decode_rate) / own[0] * own[1]
        measure = taken.measure.model_copy(update={"aggregate_rate": decimal_text(round(rate, 4))})
        readings.append((planned, taken.model_copy(update={"measure": measure})))
    return readings


def judged(readings: Readings, *secondary: str, **parameters: Any) -> GateInput:
    sealed = {"margin": "0.05", "metric": "decode-rate", "secondary": list(secondary)}
    return given(sealed | parameters, ROLES, readings)


def both(gains: Outcome, orders: tuple[str, ...] = SEVEN, **parameters: Any) -> GateInput:
    lonely = [
        (planned, taken.model_copy(update={"measure": taken.measure.model_copy(update={"aggregate_rate": "100"})}))
        for planned, taken in alone()
    ]
    return judged([*gained(gains, orders), *lonely], "aggregate-rate", **parameters)


def metrics() -> list[Case]:
    same = [
        (planned, taken.model_copy(update={"variant": INCUMBENT, "engagement": thin(INCUMBENT)}))
        for planned, taken in gained((1.0, 1.0))
    ]
    disturbed = edited(same, "q7-b1", disturbed=("foreign fraction 0.400 over its limit 0.10",))
    usual = [*gained((1.5, 1.5)), *alone()]
    return [
        ("both-faster_pass", both((1.5, 1.5)), "PASS", "aggregate-rate: FASTER"),
        ("second-not-faster_fail", both((1.5, 1.0)), "FAIL", "aggregate-rate: SAME"),
        ("first-not-faster_fail", both((1.0, 1.5)), "FAIL", "decode-rate: SAME"),
        ("second-slower_fail", both((1.5, 0.8)), "FAIL", "aggregate-rate: SLOWER"),
        ("second-cannot-be-told_fail", both((1.5, 1.053)), "UNRESOLVED", "aggregate-rate: UNRESOLVED"),
        ("first-cannot-be-told-second-the-same_fail", both((1.053, 1.0)), "FAIL", "decode-rate: UNRESOLVED"),
        ("six-pairs-for-two-metrics_fail", both((1.5, 1.5), ORDERS), "UNRESOLVED", "over 2 asks for 0.9750, 7 pairs"),
        ("six-pairs-for-one-metric_pass", judged([*quads(1.5), *alone()]), "PASS", "decode-rate: FASTER"),
        (
            "five-pairs-for-one-metric_fail",
            judged([*quads(1.5, orders=ORDERS[:5]), *alone()], a_a_half_width="0.01"),
            "UNRESOLVED",
            "over 1 asks for 0.9500, 6 pairs",
        ),
        ("equal-arms_pass", judged(same, "aggregate-rate"), "PASS", "aggregate-rate: equal arms: SAME"),
        ("equal-arms-of-six-pairs_fail", judged(disturbed, "aggregate-rate"), "UNRESOLVED", "7 pairs"),
        ("one-metric-twice_invalid", judged(usual, "decode-rate"), "INVALID", "declared twice"),
        ("unknown-metric_invalid", judged(usual, "ttft"), "INVALID", "parameter secondary"),
        ("no-rate-of-all-streams_invalid", both((1.5, 0.0)), "INVALID", "rate"),
        ("no-quads_invalid", judged(alone(), "aggregate-rate"), "INVALID", "no quad of blocks"),
        (
            "nothing-measured_invalid",
            judged(usual, "aggregate-rate").model_copy(update={"samples": ()}),
            "NOT_RUN",
            "no sample was taken",
        ),
    ]
