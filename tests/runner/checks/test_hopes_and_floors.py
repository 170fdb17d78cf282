"""Hopes, noise, facts that rest on facts, and floors: what can just be decided and what cannot."""

from __future__ import annotations

import pytest

from runner.check import check
from runner.model.order import parse_order
from runner.steps.seats import load_manifest
from tests.runner.checks.orders_for_checks import SOUND, faults_of, fields
from tests.runner.checks.test_checks import BASED, GAIN, LINE, ON_TIME


def test_what_can_just_be_decided_is_no_fault() -> None:
    for old, new in (
        ("low: 1.1, high: 1.3, unit: ratio", 'low: 4, high: 6, unit: "%"'),
        ("pairs: 6}", "pairs: 6, tokens: 8}"),
        ("pairs: 6}", "pairs: 6, tokens: 1984}"),
        ("pairs: 6}", "pairs: 6, streams: 32}"),
        ("margin: 0.05", "margin: 0.26"),
    ):
        assert faults_of(old, new) == (), new


def test_a_margin_without_a_hope_beside_it_is_below_a_factor_of_two() -> None:
    hope = (
        "  expected_gain: {low: 1.1, high: 1.3, unit: ratio, basis: a share of the step, share: 0.31, rests_on: [time]}"
    )
    text = SOUND.replace(f"{hope}\n", "")
    for margin, fields_at_fault in (("0.69", set()), ("0.7", {"primary.margin"})):
        found = check(parse_order(text.replace("margin: 0.05", f"margin: {margin}")), load_manifest("fake"))
        assert set(fields(found)) == fields_at_fault


@pytest.mark.parametrize(
    "line",
    [
        f"{GAIN}, noise: {{half_width: 0.02, how: twice, runs: 2}}",
        f"kill_at: 1.0, {GAIN}",
        "pass_at: 1.0, unit: ratio",
        'pass_at: 4, unit: "%"',
        f'{GAIN}}}\n        - {{metric: gain, op: "<=", pass_at: 1.3, unit: ratio',
        f'{GAIN}}}\n        - {{metric: gain, op: "<=", pass_at: 1.1, unit: ratio, where: another case',
    ],
)
def test_lines_beyond_the_noise_are_no_fault(line: str) -> None:
    assert faults_of(GAIN, line) == ()


def test_what_a_profiler_times_does_not_move_like_the_rate_of_the_seat() -> None:
    line = "pass_at: 1.005, unit: ratio, noise: {half_width: 0.001, how: off before and after, runs: 2}"
    assert f"{LINE}.noise.half_width" in fields(faults_of(GAIN, line))
    profiled = SOUND.replace("needs: [gpu]", "needs: [profiler]").replace(GAIN, line)
    assert check(parse_order(profiled), load_manifest("fake")) == ()


DERIVED = """  - id: chained
    statement: Twice.
    value: 92
    label: measured
    scope: here
    probe: {kind: calculation, expression: 2 * wrong}
  - id: further
    statement: Four times.
    value: 184
    label: measured
    scope: here
    probe: {kind: calculation, expression: 2 * chained}
added:"""


def test_what_is_derived_from_a_refuted_fact_supports_nothing() -> None:
    text = SOUND.replace("added:", DERIVED).replace(
        "rests_on: [bytes]\n    measure", "rests_on: [further]\n    measure"
    )
    found = fields(check(parse_order(text), load_manifest("fake")))
    assert set(found) == {"facts.4.probe", "facts.5.probe", "gates.3.rests_on.0"}
    assert found["facts.5.probe"] == "further is derived from chained, and that from wrong, which is refuted"
    standing = text.replace("expression: 2 * wrong", "expression: 4 * 23")
    assert check(parse_order(standing), load_manifest("fake")) == ()


def test_a_derived_fact_that_no_longer_stands_itself_may_keep_its_reckoning() -> None:
    text = SOUND.replace("added:", DERIVED).replace("    scope: here\n", "    scope: here\n    status: refuted\n")
    assert check(parse_order(text), load_manifest("fake")) == ()


def test_what_takes_the_place_of_a_fact_stands_itself() -> None:
    for successor, words in (("old", "superseded by itself"), ("wrong", "wrong, which is refuted")):
        found = fields(faults_of("superseded_by: bytes", f"superseded_by: {successor}"))
        assert words in found["facts.2.superseded_by"]
    line = "  - {id: older, statement: It was 1 MB., label: estimate, status: superseded, superseded_by: old}\nadded:"
    assert faults_of("added:", line) == ()


@pytest.mark.parametrize(
    "base", [("      thresholds:\n", f"      {BASED}"), ("rests_on: [bytes]\n    measure", ON_TIME)]
)
def test_a_ratio_over_a_known_time_leaves_no_less_than_the_floor(base: tuple[str, str]) -> None:
    text = SOUND.replace(*base, 1)
    for line, least in (("pass_at: 3.3, unit: ratio", False), ("pass_at: 3.4, unit: ratio", True)):
        found = fields(check(parse_order(text.replace(GAIN, line)), load_manifest("fake")))
        assert set(found) == ({"gates.3.measure.thresholds.1.pass_at"} if least else set())
    found = fields(check(parse_order(text.replace(GAIN, f"{GAIN}, stretch_at: 9")), load_manifest("fake")))
    assert "the floor is 69.22 µs" in found["gates.3.measure.thresholds.1.stretch_at"]


COUNTED = """  - id: experts
    statement: Different experts of a step.
    value: 22.95
    unit: experts
    label: measured
    scope: 4 rows
    probe: {kind: unique-experts, experts: 256, top_k: 6, rows: 4}
  - {id: read, statement: Cold., value: 270, unit: GB/s, label: measured, scope: seat, evidence: {file: a.md}}
added:"""
FLOOR = "bytes: 18688512, bandwidth: 270, microseconds: 69.2, rests_on: [bytes]"


@pytest.mark.parametrize(
    ("floor", "field"),
    [
        ("bytes: 18647885, bandwidth: 270, rests_on: [bytes, experts, read]", ""),
        ("bytes: 18688512, bandwidth: 270, rests_on: [bytes, read]", ""),
        ("bytes: 812544, bandwidth: 270, rests_on: [bytes, experts]", "floors.0.bytes"),
        ("bytes: 18688512, bandwidth: 288, rests_on: [bytes, read]", "floors.0.bandwidth"),
    ],
)
def test_a_floor_is_what_its_facts_make(floor: str, field: str) -> None:
    text = SOUND.replace("added:", COUNTED).replace(FLOOR, floor)
    assert set(fields(check(parse_order(text), load_manifest("fake")))) == ({field} if field else set())


def test_a_bandwidth_is_not_far_beyond_what_the_seat_was_measured_at() -> None:
    for bandwidth, beyond in (("288", False), ("361", True)):
        text = SOUND.replace("bandwidth: 270, microseconds: 69.2", f"bandwidth: {bandwidth}")
        found = fields(check(parse_order(text), load_manifest("ohtani-tp8")))
        assert ("floors.0.bandwidth" in found) is beyond


def test_hopes_and_times_at_their_very_bound_are_no_fault() -> None:
    for old, new in (
        ("high: 1.3,", "high: 1.45,"),
        ("low: 1.1, high: 1.3, unit: ratio", 'low: 10, high: 44, unit: "%"'),
        ("low: 1.1, high: 1.3, unit: ratio", 'low: 10, high: 31, unit: "% of the step"'),
        ("unit: µs, floor: least", "kill_at: 88, unit: µs, floor: least"),
        (
            'metric: launch, op: "<=", pass_at: 88, unit: µs, floor: least',
            'metric: another, op: "<=", pass_at: 6, unit: µs',
        ),
    ):
        assert faults_of(old, new) == (), new
