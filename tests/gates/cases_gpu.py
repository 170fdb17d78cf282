"""Cases of the gates about kernels on a GPU desk: times against incumbents, floors, and the sanitizer."""

from __future__ import annotations

from typing import Any

from runner.gates.base import GateInput
from runner.model.desk_measure import (
    KernelSpeedCase,
    KernelSpeedMeasure,
    KernelTimes,
    PressureCase,
    PressureMeasure,
    SanitizerMeasure,
    SanitizerTool,
)
from runner.model.sample import EngagedMeasure
from tests.gates.build import DESK, DIGEST, NO_RANKS, Case, given, sample, window

TARGETS: dict[str, Any] = {
    "versions": ["1.4.5", "1.6.5"],
    "bits": [2],
    "targets": [{"rows": 4, "ratio": "3", "microseconds": "24"}],
}
OURS, THEIRS = (20_000,) * 8, (70_000,) * 8


def times(name: str, cold: tuple[int, ...], error: str = "1e-4") -> KernelTimes:
    return KernelTimes(name=name, relative_error=error, cold_ns=cold, warm_ns=cold)


def case(*kernels: KernelTimes, **changes: Any) -> KernelSpeedCase:
    standard = {"id": "k2-m4", "bits": 2, "rows": 4, "weights": 1000, "bytes": 250, "launches": 64, "counted": 64}
    return KernelSpeedCase.model_validate(standard | changes | {"kernels": kernels})


GOOD = case(times("candidate", OURS), times("exl3_moe", THEIRS))


def kernel_speed() -> list[Case]:
    def one(
        first: KernelSpeedCase = GOOD,
        second: KernelSpeedCase | None = GOOD,
        versions: tuple[str, ...] = (),
        **more: Any,
    ) -> GateInput:
        names = versions or ("1.4.5", "1.6.5")
        readings = []
        for version, cases in zip(names, ((first,), (second,) if second else ()), strict=True):
            planned = window(f"kernel-speed-{version}", "desk", "kernel-speed", "none")
            measure = KernelSpeedMeasure(version=version, incumbent_digest=DIGEST, cases=cases)
            readings.append((planned, sample(planned, measure, **NO_RANKS)))
        return given(TARGETS | more, DESK, readings)

    def against(*cold: int, ours: tuple[int, ...] = OURS, error: str = "1e-4") -> KernelSpeedCase:
        return case(times("candidate", ours, error), times("exl3_moe", THEIRS), times("exl3_moe_coop", cold))

    def twice_against(*cold: int) -> GateInput:
        both = against(*cold)
        return one(both, both, targets=[{"rows": 4, "ratio": "3", "against": "exl3_moe_coop"}])

    def twice(both: KernelSpeedCase) -> GateInput:
        return one(both, both)

    sixteen = [{"rows": 4, "ratio": "3"}, {"rows": 16, "ratio": "2"}]
    planned = window("kernel-speed-1.4.5", "desk", "kernel-speed", "none")
    wrong_kind = given(TARGETS, DESK, [(planned, sample(planned, EngagedMeasure(tokens=1), **NO_RANKS))])
    other_bits = [{"rows": 4, "ratio": "3", "bits": 3}]
    return [
        ("FL-55-one-incumbent-is-faster_fail", one(against(*[50_000] * 8)), "FAIL", "2.50 times"),
        ("only-the-median-reaches-it_fail", one(against(*[59_000] * 3, *[61_000] * 5)), "FAIL", "2.95 times"),
        ("wrong-output_fail", one(against(*THEIRS, error="2.1e-3")), "FAIL", "the candidate is wrong by 2.1e-3"),
        (
            "too-slow-though-faster_fail",
            twice(case(times("candidate", (25_000,) * 8), times("exl3_moe", (99_000,) * 8))),
            "FAIL",
            "25.0 µs",
        ),
        (
            "every-target_pass",
            one(),
            "PASS",
            "every target",
            {"k2-m4 over best incumbent, low": ">= 3", "k2-m4 candidate": "<= 24"},
        ),
        (
            "exactly-at-its-targets_pass",
            twice(case(times("candidate", (24_000,) * 6), times("x", (73_000,) * 6))),
            "PASS",
            "every target",
        ),
        ("at-the-error-limit_pass", one(against(*THEIRS, error="2e-3")), "PASS", "every target"),
        (
            "no-absolute-target_pass",
            one(targets=[{"rows": 4, "ratio": "3"}]),
            "PASS",
            "every target",
            {"k2-m4 candidate": ""},
        ),
        (
            "one-wild-replay_pass",
            one(case(times("candidate", (20_000,) * 12), times("x", (*[70_000] * 11, 1_000)))),
            "PASS",
            "every target",
        ),
        ("a-version-is-missing_invalid", one(versions=("1.4.5", "1.4.6")), "INVALID", "incumbent 1.6.5: not measured"),
        ("rows-are-missing_invalid", one(targets=sixteen), "INVALID", "K 2 at 16 rows: measured in 0 of 2"),
        ("bits-are-missing_invalid", one(targets=other_bits), "INVALID", "K 3 at 4 rows"),
        ("a-case-is-missing_invalid", one(second=None), "INVALID", "measured in 1 of 2"),
        ("FL-01-it-did-not-run_invalid", one(case(*GOOD.kernels, counted=0)), "INVALID", "counted 0"),
        (
            "nothing-to-compare_invalid",
            one(case(times("candidate", OURS))),
            "INVALID",
            "any incumbent kernel did not run",
        ),
        (
            "the-incumbent-is-wrong_invalid",
            one(case(times("candidate", OURS), times("x", THEIRS, "0.021"))),
            "INVALID",
            "x is wrong by 0.021",
        ),
        (
            "incumbent-at-its-error-limit_pass",
            one(case(times("candidate", OURS), times("x", THEIRS, "2e-2"))),
            "PASS",
            "every",
        ),
        ("replays-do-not-pair_invalid", one(against(*[70_000] * 7)), "INVALID", "7 replays do not pair"),
        (
            "too-few-replays_invalid",
            twice(case(times("candidate", (20_000,) * 5), times("x", (70_000,) * 5))),
            "INVALID",
            "5 replays",
        ),
        ("no-time-at-all_invalid", one(against(*[70_000] * 7, 0)), "INVALID", "do not pair"),
        (
            "only-the-named-kernel-counts_pass",
            one(against(*[50_000] * 8), targets=[{"rows": 4, "ratio": "3", "against": "exl3_moe"}]),
            "PASS",
            "every target",
            {"k2-m4 over exl3_moe, low": ">= 3"},
        ),
        (
            "the-named-kernel-is-faster_fail",
            twice_against(*[50_000] * 8),
            "FAIL",
            "2.50 times as fast as exl3_moe_coop",
        ),
        (
            "the-named-kernel-did-not-run_invalid",
            one(targets=[{"rows": 4, "ratio": "3", "against": "exl3_moe_coop"}]),
            "INVALID",
            "exl3_moe_coop did not run",
        ),
        ("no-kernel-at-all_invalid", one(case()), "INVALID", "any incumbent kernel did not run"),
        (
            "the-yardstick-moved_invalid",
            one(second=case(times("candidate", (23_000,) * 8), times("x", (99_000,) * 8))),
            "INVALID",
            "own medians lie 0.140 apart",
        ),
        (
            "yardstick-within-its-limit_pass",
            one(second=case(times("candidate", (22_000,) * 8), times("x", (99_000,) * 8))),
            "PASS",
            "every",
        ),
        ("sample-of-another-kind_invalid", wrong_kind, "INVALID", "kind engaged"),
        ("unknown-parameter_invalid", one(ratio="2"), "INVALID", "parameter ratio"),
    ]


def kernel_speed_under_routes() -> list[Case]:
    """Version 2: uniform and recorded routes, each with targets of its own."""
    both: list[dict[str, Any]] = [
        {"rows": 4, "ratio": "3"},
        {"rows": 4, "ratio": "2", "microseconds": "18", "routes": "recorded"},
    ]

    def at(ours: int, theirs: int, *, counted: int = 64, error: str = "1e-4") -> KernelSpeedCase:
        kernels = times("candidate", (ours,) * 8, error), times("exl3_moe", (theirs,) * 8)
        return case(*kernels, id="k2-m4-recorded", routes="recorded", counted=counted)

    def one(
        *cases: KernelSpeedCase, again: tuple[KernelSpeedCase, ...] | None = None, same: str = "", **more: Any
    ) -> GateInput:
        readings = []
        for version, measured in (("1.4.5", cases), ("1.6.5", cases if again is None else again)):
            planned = window(f"kernel-speed-{version}", "desk", "kernel-speed", "none")
            digest = same or version.replace(".", "0").ljust(64, "a")
            measure = KernelSpeedMeasure(version=version, incumbent_digest=digest, cases=measured)
            readings.append((planned, sample(planned, measure, **NO_RANKS)))
        return given(TARGETS | {"targets": both} | more, DESK, readings)

    has = {"1.4.5": ["exl3_moe"], "1.6.5": ["exl3_moe"]}
    good = at(16_000, 40_000)
    planned = window("kernel-speed-1.4.5", "desk", "kernel-speed", "none")
    wrong_kind = given(TARGETS, DESK, [(planned, sample(planned, EngagedMeasure(tokens=1), **NO_RANKS))])
    return [
        (
            "both-kinds_pass",
            one(GOOD, good),
            "PASS",
            "every target",
            {"k2-m4 over best incumbent, low": ">= 3", "k2-m4-recorded over best incumbent, low": ">= 2"},
        ),
        ("slow-where-tokens-share-experts_fail", one(GOOD, at(16_000, 31_000)), "FAIL", "k2-m4-recorded: 1.94 times"),
        ("too-long-where-tokens-share-experts_fail", one(GOOD, at(19_000, 80_000)), "FAIL", "19.0 µs"),
        (
            "one-kind-fast-does-not-pay-for-the-other_fail",
            one(case(times("candidate", OURS), times("exl3_moe", (50_000,) * 8)), at(5_000, 80_000)),
            "FAIL",
            "k2-m4: 2.50 times",
        ),
        ("wrong-under-recorded-routes_fail", one(GOOD, at(16_000, 40_000, error="2.1e-3")), "FAIL", "wrong by 2.1e-3"),
        ("recorded-routes-are-missing_invalid", one(GOOD), "INVALID", "K 2 at 4 rows: measured in 0 of 2"),
        ("uniform-routes-are-missing_invalid", one(good), "INVALID", "K 2 at 4 rows: measured in 0 of 2"),
        ("recorded-in-one-process-alone_invalid", one(GOOD, good, again=(GOOD,)), "INVALID", "measured in 1 of 2"),
        ("FL-01-it-did-not-run_invalid", one(GOOD, at(16_000, 40_000, counted=0)), "INVALID", "counted 0"),
        (
            "slow-and-half-measured_invalid",
            one(GOOD, at(30_000, 40_000), again=(at(30_000, 40_000),)),
            "INVALID",
            "measured in 1 of 2",
        ),
        (
            "not-asked-for-and-so-not-judged_pass",
            one(GOOD, at(90_000, 40_000), targets=both[:1]),
            "PASS",
            "every target",
        ),
        ("one-library-under-two-names_invalid", one(GOOD, good, same=DIGEST), "INVALID", "as 1.6.5 and as 1.4.5"),
        ("what-each-version-has-ran_pass", one(GOOD, good, kernels=has), "PASS", "every target"),
        (
            "FL-55-an-older-library-by-the-name-of-a-later_invalid",
            one(GOOD, good, kernels=has | {"1.6.5": ["exl3_moe", "exl3_moe_coop"]}),
            "INVALID",
            "1.6.5, k2-m4: exl3_moe ran, it has exl3_moe, exl3_moe_coop",
        ),
        (
            "a-later-library-by-the-name-of-an-older_invalid",
            one(case(*GOOD.kernels, times("exl3_moe_coop", THEIRS)), good, kernels=has),
            "INVALID",
            "1.4.5, k2-m4: exl3_moe, exl3_moe_coop ran, it has exl3_moe",
        ),
        ("no-target_invalid", one(GOOD, good, targets=[]), "INVALID", "nothing would be judged"),
        ("unknown-kind-of-routes_invalid", one(targets=[both[0] | {"routes": "my"}]), "INVALID", "parameter targets"),
        ("sample-of-another-kind_invalid", wrong_kind, "INVALID", "kind engaged"),
    ]


ASKED: dict[str, Any] = {"bits": [2], "rows": [4], "over_floor": "4"}


def pressed(parameters: dict[str, Any] | None = None, **changes: Any) -> GateInput:
    standard: dict[str, Any] = {
        "id": "k2-m4",
        "bits": 2,
        "rows": 4,
        "weights": 1000,
        "bytes": 250,
        "full_ns": (20_000, 21_000, 90_000),
        "null_ns": (12_000, 12_500, 13_000),
        "full_error": "1e-4",
        "null_error": "1",
        "byte_floor_ns": 5_000,
        "decode_floor_ns": 14_000,
    }
    measure = PressureMeasure(
        read_bytes_per_second=4_000_000_000_000,
        decode_weights_per_second={"2": 5_000_000_000_000},
        cases=(PressureCase.model_validate(standard | changes),),
    )
    planned = window("pressure", "desk", "pressure", "none")
    return given(ASKED | (parameters or {}), DESK, [(planned, sample(planned, measure, **NO_RANKS))])


def pressure_above_its_floor() -> list[Case]:
    """Version 2."""
    both = {"k2-m4 bytes alone": "", "k2-m4 decoding alone": "", "k2-m4 kernel": "", "k2-m4 without decoding": ""}
    counted = {"occupancy_percent": "12.5"}
    return [
        ("far-above-decoding_fail", pressed(full_ns=(56_001,)), "FAIL", "4.00 times its floor of 14000 ns", both),
        ("far-above-its-bytes_fail", pressed(byte_floor_ns=15_000, full_ns=(60_001,)), "FAIL", "floor of 15000 ns"),
        ("slow-by-its-own-limit_fail", pressed({"over_floor": "1.2"}), "FAIL", "1.50 times"),
        ("near-its-floor_pass", pressed(counters=counted), "PASS", "near its floor", both),
        ("at-its-floor_pass", pressed(full_ns=(14_000,)), "PASS", "near its floor"),
        ("faster-than-decoding_invalid", pressed(full_ns=(13_999,)), "INVALID", "its floor is 14000"),
        ("faster-than-reading_invalid", pressed(byte_floor_ns=30_000), "INVALID", "its floor is 30000"),
        ("no-replay_invalid", pressed(full_ns=()), "INVALID", "no replay"),
        ("no-replay-without-decoding_invalid", pressed(null_ns=()), "INVALID", "no replay"),
        ("a-nanosecond_invalid", pressed(full_ns=(1,)), "INVALID", "one of the two was not measured"),
        ("null-build-decodes_invalid", pressed(null_error="0.09"), "INVALID", "it decodes"),
        ("rows-are-missing_invalid", pressed({"rows": [4, 16]}), "INVALID", "K 2 at 16 rows: not measured"),
    ]


def pressure() -> list[Case]:
    one = pressed
    return [
        ("far-above-decoding_fail", one(full_ns=(56_001,)), "FAIL", "4.00 times its floor of 14000 ns"),
        ("far-above-its-bytes_fail", one(byte_floor_ns=15_000, full_ns=(60_001,)), "FAIL", "floor of 15000 ns"),
        ("slow-by-its-own-limit_fail", one({"over_floor": "1.2"}), "FAIL", "1.50 times"),
        ("near-its-floor_pass", one(), "PASS", "near its floor", {"k2-m4 over its floor": "<= 4"}),
        ("at-its-limit_pass", one(full_ns=(56_000,)), "PASS", "near its floor"),
        ("at-the-error-limits_pass", one(full_error="2e-3", null_error="0.1"), "PASS", "near its floor"),
        ("null-build-decodes_invalid", one(null_error="0.09"), "INVALID", "it decodes"),
        ("full-build-is-wrong_invalid", one(full_error="2.1e-3"), "INVALID", "the full build is wrong"),
        ("no-replay_invalid", one(full_ns=()), "INVALID", "no replay"),
        ("no-replay-without-decoding_invalid", one(null_ns=()), "INVALID", "no replay"),
        ("read-rate-not-measured_invalid", one(byte_floor_ns=0), "INVALID", "ceilings"),
        ("decode-rate-not-measured_invalid", one(decode_floor_ns=0), "INVALID", "ceilings"),
        ("rows-are-missing_invalid", one({"rows": [4, 16]}), "INVALID", "K 2 at 16 rows: not measured"),
        ("bits-are-missing_invalid", one({"bits": [3]}), "INVALID", "K 3 at 4 rows: not measured"),
        ("no-limit_invalid", one({"over_floor": "much"}), "INVALID", "parameter over_floor"),
    ]


def sanitizer() -> list[Case]:
    def one(parameters: dict[str, Any] | None = None, without: str = "", **changes: Any) -> GateInput:
        tools = []
        for name in ("memcheck", "racecheck", "initcheck", "synccheck"):
            standard = {
                "tool": name,
                "errors": 0,
                "planted_errors": 1,
                "launches": 16,
                "words": "",
                "planted_words": "",
            }
            if name != without:
                tools.append(SanitizerTool.model_validate(standard | (changes if name == "racecheck" else {})))
        planned = window("sanitizer", "desk", "sanitizer", "none")
        measure = SanitizerMeasure(tools=tuple(tools))
        return given(parameters or {}, DESK, [(planned, sample(planned, measure, **NO_RANKS))])

    return [
        ("FL-14-a-race_fail", one(errors=3), "FAIL", "racecheck: 3 errors"),
        ("a-single-error_fail", one(errors=1), "FAIL", "racecheck: 1 errors"),
        ("a-race-though-not-asked-for_fail", one({"tools": ["memcheck"]}, errors=2), "FAIL", "racecheck: 2 errors"),
        ("four-clean-tools_pass", one(), "PASS", "every tool is clean", {"racecheck errors": "<= 0"}),
        ("one-launch-is-enough_pass", one(launches=1), "PASS", "every tool"),
        (
            "three-tools-where-three-are-asked_pass",
            one({"tools": ["memcheck"]}, without="synccheck"),
            "PASS",
            "every tool",
        ),
        ("B20-a-tool-never-ran_invalid", one(without="initcheck"), "INVALID", "initcheck: did not run"),
        ("the-tool-finds-nothing_invalid", one(planted_errors=0), "INVALID", "did not find its planted fault"),
        ("nothing-was-launched_invalid", one(launches=0), "INVALID", "did not run"),
        ("no-summary_invalid", one(errors=-1), "INVALID", "gave no summary"),
    ]
