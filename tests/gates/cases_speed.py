"""Cases of the speed gate: six quads of blocks in two shared boots, and the incumbent alone in a third."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from runner.gates.base import GateInput
from runner.model.base import decimal_text
from runner.model.plan import PlannedWindow
from runner.model.sample import Engagement, Sample, SpeedMeasure, StreamMeasure
from tests.gates.build import CANDIDATE, INCUMBENT, LAYERS, Case, boot, both, fell_back, given, sample, window

ROLES = {"incumbent-only": "incumbent-only", "shared-a": "shared", "shared-b": "shared"}
ORDERS = ("ABBA", "BAAB", "BAAB", "ABBA", "BAAB", "ABBA")
WOBBLE = (0.0, 0.004, -0.003, 0.006, -0.005, 0.002)
"""Relative noise of a block, by quad and place, small against the margin."""
SLOWEST = "slowest candidate boot over fastest"
Readings = list[tuple[PlannedWindow, Sample]]
Edit = Callable[[PlannedWindow, Sample], Sample]


def thin(variant: str) -> tuple[Engagement, ...]:
    """Both ranks, one layer: there are many blocks."""
    return both(variant, layers=LAYERS[:1])


def block(rate: float, quad: int, *, tokens: int = 128, digit: str = "0", texts: int = 1) -> SpeedMeasure:
    """One block at ``rate`` tok/s."""
    streams = tuple(
        StreamMeasure(
            id=f"en-{index}",
            language="en",
            prompt_digest=(digit + str(quad)) * 32,
            completion_tokens=tokens,
            ttft_ns=20_000_000,
            decode_ns=round((tokens - 1) * 1e9 / rate),
            inter_token_ns=(5_000_000, 6_000_000, 7_000_000),
            finish_reason="length",
        )
        for index in range(texts)
    )
    return SpeedMeasure(
        streams=1,
        texts=streams,
        decode_rate=decimal_text(round(rate, 4)),
        aggregate_rate=decimal_text(round(rate * 0.9, 4)),
        server_tokens=tokens,
        server_decode_ns=streams[0].decode_ns if streams else 0,
    )


def quads(gain: float, incumbent: float = 100.0, noise: float = 1.0, orders: tuple[str, ...] = ORDERS) -> Readings:
    """One quad for each of ``orders``; the candidate runs at ``gain`` times the incumbent's rate."""
    readings: Readings = []
    for quad, order in enumerate(orders):
        place = "shared-a" if quad < 3 else "shared-b"
        for position, arm in enumerate(order):
            arguments = {"quad": f"q{quad + 1}", "block": position}
            planned = window(
                f"q{quad + 1}-b{position + 1}", place, "speed", "drawn", control=False, arguments=arguments
            )
            variant = CANDIDATE if arm == "B" else INCUMBENT
            wobble = 1 + noise * WOBBLE[(quad + position) % 6]
            rate = incumbent * wobble * (gain if arm == "B" else 1.0)
            readings.append((planned, sample(planned, block(rate, quad), variant, engagement=thin(variant))))
    return readings


def alone(rate: float = 100.0) -> Readings:
    """Four blocks of the incumbent without the candidate's library."""
    readings: Readings = []
    for position in range(4):
        planned = window(f"alone-b{position + 1}", "incumbent-only", "speed", "incumbent")
        readings.append((planned, sample(planned, block(rate, 0), INCUMBENT, engagement=thin(INCUMBENT))))
    return readings


def edited(readings: Readings, names: str, **changes: Any) -> Readings:
    """The readings with samples of the named windows changed."""
    chosen = names.split()
    return [(one, taken.model_copy(update=changes) if one.id in chosen else taken) for one, taken in readings]


def all_of(readings: Readings, edit: Edit) -> Readings:
    return [(one, edit(one, taken)) for one, taken in readings]


def one(readings: Readings, roles: dict[str, str] | None = None, **parameters: Any) -> GateInput:
    return given({"margin": "0.05", "metric": "decode-rate"} | parameters, roles or ROLES, readings)


def slow_boot(planned: PlannedWindow, taken: Sample) -> Sample:
    """Everything in the second boot is a quarter slower."""
    rate = float(taken.measure.decode_rate) if isinstance(taken.measure, SpeedMeasure) else 0.0
    if planned.boot != "shared-b":
        return taken
    return taken.model_copy(update={"measure": block(rate * 0.75, int(planned.id[1]) - 1)})


def clock(taken: Sample, factor: float, streams: int = 1) -> Sample:
    """The engine's own decode time is another than the client's."""
    assert isinstance(taken.measure, SpeedMeasure)
    told = {"server_decode_ns": round(taken.measure.server_decode_ns * factor), "streams": streams}
    return taken.model_copy(update={"measure": taken.measure.model_copy(update=told)})


def late(planned: PlannedWindow, taken: Sample) -> Sample:
    return clock(taken, 1.03 if taken.variant == CANDIDATE else 1.0)


def early(planned: PlannedWindow, taken: Sample) -> Sample:
    return clock(taken, 0.97 if taken.variant == INCUMBENT else 1.0)


def crowded(planned: PlannedWindow, taken: Sample) -> Sample:
    return clock(taken, 1.2, streams=4)


def slow_incumbent(planned: PlannedWindow, taken: Sample) -> Sample:
    """Only the incumbent is slower in the second boot."""
    return slow_boot(planned, taken) if taken.variant == INCUMBENT else taken


def _placeless(planned: PlannedWindow) -> PlannedWindow:
    """The block does not say where in its quad it stands."""
    arguments = {name: value for name, value in planned.arguments.items() if name != "block"}
    return planned.model_copy(update={"arguments": arguments})


def speed() -> list[Case]:
    faster, lonely = quads(1.5), alone()
    usual = [*faster, *lonely]
    names = [planned.id for planned, _ in faster]
    disturbed = {"disturbed": ("foreign fraction 0.400 over its limit 0.10",)}
    repeated = [reading for reading in edited(faster, "q1-b2", **disturbed) if reading[0].id == "q1-b2"]
    fewer = edited(usual, "q2-b1", measure=block(150, 1, tokens=96))
    zero = SpeedMeasure.model_copy(block(150, 1), update={"decode_rate": "0"})
    same_arm = [
        (planned, taken.model_copy(update={"variant": INCUMBENT, "engagement": thin(INCUMBENT)}))
        for planned, taken in quads(1.0)
    ]
    drifting = [
        (planned, taken.model_copy(update={"measure": block(100 * 1.4 ** (planned.arguments["block"] in (0, 3)), 0)}))
        for planned, taken in same_arm
    ]
    loud = [
        (planned, taken.model_copy(update={"variant": INCUMBENT, "engagement": thin(INCUMBENT)}))
        for planned, taken in quads(1.0, noise=40)
    ]
    noisy = quads(1.5, noise=40)
    a_single_boot = [
        (planned.model_copy(update={"boot": "shared-a"}), taken.model_copy(update={"boot": "shared-a-0000000a"}))
        for planned, taken in faster
    ]
    fast_aggregate = [
        (
            planned,
            taken.model_copy(update={"measure": taken.measure.model_copy(update={"aggregate_rate": "90"})}),
        )
        for planned, taken in faster
    ]
    third = thin("t0")
    return [
        ("nothing-gained_fail", one([*quads(1.0), *lonely]), "FAIL", "SAME"),
        ("slower_fail", one([*quads(0.8), *lonely]), "FAIL", "SLOWER"),
        ("FL-30-right-but-slow_fail", one([*quads(0.4), *lonely]), "FAIL", "SLOWER"),
        ("slower-is-not-not-slower_fail", one([*quads(0.8), *lonely], require="not-slower"), "FAIL", "SLOWER"),
        ("gain-inside-the-margin_fail", one([*quads(1.053), *lonely]), "UNRESOLVED", "UNRESOLVED"),
        ("H2-aggregate-not-faster_fail", one([*fast_aggregate, *lonely], metric="aggregate-rate"), "FAIL", "SAME"),
        ("noise-above-the-margin_fail", one([*noisy, *lonely], boot_to_boot="0.2"), "UNRESOLVED", "the A/A floor"),
        ("recorded-floor-above-the-margin_fail", one(usual, a_a_half_width="0.06"), "UNRESOLVED", "the A/A floor 0.06"),
        (
            "slow-boot_fail",
            one([*all_of(faster, slow_boot), *lonely], tail="0.9", boot_to_boot="0.2"),
            "FAIL",
            "slow boots: shared-b",
        ),
        (
            "pair-lost_fail",
            one(edited(usual, "q6-b1", **disturbed), a_a_half_width="0.01"),
            "UNRESOLVED",
            "1 pairs fewer",
        ),
        ("no-floor_fail", one(edited(usual, "q6-b1", **disturbed)), "UNRESOLVED", "no A/A floor"),
        ("a-a-arms-differ_fail", one(drifting), "FAIL", "equal arms: FASTER"),
        ("a-a-floor-above-the-margin_fail", one(loud), "UNRESOLVED", "UNRESOLVED"),
        ("a-a_pass", one(same_arm), "PASS", "SAME"),
        ("faster_pass", one(usual), "PASS", "FASTER", {"A/A floor": "<= 0.05", SLOWEST: ""}),
        (
            "slow-incumbent-in-one-boot_pass",
            one([*all_of(faster, slow_incumbent), *lonely], tail="0.9", boot_to_boot="0.2"),
            "PASS",
            "FASTER",
            {SLOWEST: ">= 0.9"},
        ),
        (
            "no-worse-cannot-be-told_fail",
            one([*quads(0.952), *lonely], require="not-slower"),
            "UNRESOLVED",
            "UNRESOLVED",
        ),
        (
            "block-without-place_invalid",
            one([(_placeless(planned), taken) for planned, taken in usual]),
            "INVALID",
            "expected four in order",
        ),
        (
            "incumbent-alone-was-shared_invalid",
            one(usual, ROLES | {"incumbent-only": "shared"}),
            "INVALID",
            "no incumbent-only boot",
        ),
        ("repeated-block_pass", one([*repeated, *usual]), "PASS", "FASTER"),
        ("recorded-floor_pass", one(usual, a_a_half_width="0.05"), "PASS", "FASTER"),
        ("slow-boot-reported_pass", one([*all_of(faster, slow_boot), *lonely], boot_to_boot="0.2"), "PASS", "FASTER"),
        (
            "slow-boot-inside-limit_pass",
            one([*all_of(faster, slow_boot), *lonely], tail="0.7", boot_to_boot="0.2"),
            "PASS",
            "FASTER",
        ),
        ("not-slower_pass", one([*quads(1.0), *lonely], require="not-slower"), "PASS", "SAME"),
        ("not-slower-but-faster_pass", one(usual, require="not-slower"), "PASS", "FASTER"),
        (
            "six-of-24-disturbed_fail",
            one(edited(usual, "q5-b1 q5-b2 q5-b3 q6-b1 q6-b2 q6-b3", **disturbed)),
            "UNRESOLVED",
            "2 pairs fewer",
        ),
        (
            "seven-of-24-disturbed_invalid",
            one(edited(usual, " ".join(names[:7]), **disturbed)),
            "INVALID",
            "29% of the blocks",
        ),
        (
            "every-quad-disturbed_invalid",
            one(edited(usual, "q1-b1 q2-b1 q3-b1 q4-b1 q5-b1 q6-b1", **disturbed)),
            "INVALID",
            "every quad",
        ),
        ("incumbent-slowed-down_invalid", one([*faster, *alone(110)]), "INVALID", "the incumbent alone is faster"),
        (
            "incumbent-slowed-inside-the-spread_fail",
            one([*quads(1.25), *alone(120)], boot_to_boot="0.2", alone="discounted"),
            "UNRESOLVED",
            "does not clear the margin",
        ),
        (
            "incumbent-slowed-inside-the-spread-not-discounted_pass",
            one([*quads(1.25), *alone(120)], boot_to_boot="0.2"),
            "PASS",
            "FASTER",
        ),
        (
            "incumbent-slowed-not-slower_fail",
            one([*quads(1.0), *alone(115)], boot_to_boot="0.2", alone="discounted", require="not-slower"),
            "UNRESOLVED",
            "does not clear the margin",
        ),
        (
            "incumbent-slowed-by-less-than-the-gain_pass",
            one([*faster, *alone(110)], boot_to_boot="0.2", alone="discounted"),
            "PASS",
            "FASTER",
        ),
        (
            "incumbent-slower-alone-gains-nothing_fail",
            one([*quads(1.0), *alone(70)], boot_to_boot="0.2", alone="discounted"),
            "FAIL",
            "SAME",
        ),
        (
            "incumbent-slowed-beyond-the-spread_invalid",
            one([*faster, *alone(125)], boot_to_boot="0.2", alone="discounted"),
            "INVALID",
            "the incumbent alone is faster",
        ),
        ("no-incumbent-alone_invalid", one(faster), "INVALID", "no incumbent-only boot"),
        (
            "incumbent-alone-without-rate_invalid",
            one([*faster, *edited(lonely, "alone-b1", measure=zero)]),
            "INVALID",
            "no incumbent-only",
        ),
        ("one-shared-boot_invalid", one([*a_single_boot, *lonely]), "INVALID", "at least two shared boots"),
        (
            "FL-57-events-counted_invalid",
            one(edited(usual, "q1-b1", faults=("en-0: 46 tokens streamed, usage says 128",))),
            "INVALID",
            "usage says 128",
        ),
        ("fewer-tokens_invalid", one(fewer), "INVALID", "quad q2: its blocks generated other numbers"),
        (
            "SF-13-other-prompts_invalid",
            one(edited(usual, "q3-b2", measure=block(150, 2, digit="f"))),
            "INVALID",
            "other prompts",
        ),
        ("block-missing_invalid", one(usual[1:]), "INVALID", "quad q1: blocks [1, 2, 3]"),
        (
            "block-not-measured_invalid",
            given({"margin": "0.05"}, ROLES, [(usual[0][0], None), *usual[1:]]),
            "INVALID",
            "q1-b1: not measured",
        ),
        ("arms-out-of-order_invalid", one(_swapped(usual)), "INVALID", "expected ABBA or BAAB"),
        ("no-rate_invalid", one(edited(usual, "q2-b1", measure=zero)), "INVALID", "a block has no rate"),
        (
            "FL-01-fallback_invalid",
            one(edited(usual, "q1-b2", engagement=thin(INCUMBENT))),
            "INVALID",
            "lna2 never ran",
        ),
        (
            "FL-07-one-rank-falls-back_invalid",
            one(edited(usual, "q1-b2", engagement=(thin(CANDIDATE)[0], fell_back(1)))),
            "INVALID",
            "q1-b2: rank 1",
        ),
        (
            "candidate-in-the-incumbents-block_invalid",
            one(edited(usual, "q1-b1", engagement=thin(CANDIDATE))),
            "INVALID",
            "lna2 ran 4 rows",
        ),
        (
            "third-variant_invalid",
            one(edited(usual, "q1-b1", variant="t0", engagement=third)),
            "INVALID",
            "variant t0 was on",
        ),
        (
            "boots-mixed_invalid",
            one(edited(usual, "q1-b2", boot="shared-b-0000000a")),
            "INVALID",
            "planned was shared-a",
        ),
        ("two-boots-of-one-name_invalid", _second_boot(usual), "INVALID", "its blocks come from several boots"),
        ("client-and-metrics-two-clocks_invalid", one(all_of(usual, late)), "INVALID", "lna2: decode took"),
        ("engine-says-less-time_invalid", one(all_of(usual, early)), "INVALID", "incumbent: decode took"),
        ("one-late-block_pass", one(edited(usual, "q1-b1", measure=early(*usual[0]).measure)), "PASS", "FASTER"),
        ("four-streams-two-clocks_pass", one(all_of(usual, crowded)), "PASS", "FASTER"),
        (
            "disturbed-block-two-clocks_fail",
            one(edited(usual, "q1-b2", measure=clock(usual[1][1], 1.6).measure, **disturbed), a_a_half_width="0.01"),
            "UNRESOLVED",
            "1 pairs fewer",
        ),
        ("no-margin_invalid", given({}, ROLES, usual), "INVALID", "parameter margin"),
        ("stray-sample_invalid", _stray(usual), "INVALID", "a sample of a window this gate does not read"),
        ("other-instrument_invalid", one(edited(usual, "q1-b2", instrument="speed@2")), "INVALID", "read by speed@2"),
        ("no-quads_invalid", one(lonely), "INVALID", "no quad of blocks"),
    ]


def _swapped(readings: Readings) -> Readings:
    """The second block measured the arm of the first and the other way round."""
    by_name = {planned.id: taken for planned, taken in readings}
    first, second = by_name["q1-b1"], by_name["q1-b2"]
    return [
        (
            planned,
            {"q1-b1": second, "q1-b2": first}.get(planned.id, taken).model_copy(update={"window": planned.id}),
        )
        for planned, taken in readings
    ]


def _second_boot(readings: Readings) -> GateInput:
    moved = edited(readings, "q1-b2", boot="shared-a-0000000b")
    records = [boot(name) for name in ROLES] + [boot("shared-a").model_copy(update={"id": "shared-a-0000000b"})]
    return given({"margin": "0.05"}, ROLES, moved, records)


def _stray(readings: Readings) -> GateInput:
    whole = one(readings)
    stray = whole.samples[0].model_copy(update={"window": "another"})
    return whole.model_copy(update={"samples": (*whole.samples, stray)})
