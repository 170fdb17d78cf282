"""Cases of the gates that read profiler traces: launches of a step, and ranks beside each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from runner.gates.base import GateInput
from runner.model.engine_measure import GroupLaunches, LaunchesMeasure, RankLaunches, RankSkewMeasure, RankSteps
from runner.model.plan import PlannedWindow
from runner.model.sample import FinishMeasure
from tests.gates.build import INCUMBENT, RANKS, Case, boot, both, given, ran, sample, window
from tests.gates.cases_speed import block

TRACED = {"traced": "traced"}
STEPS = 24
MS = 1_000_000
EIGHT = tuple(range(8))


def rank(
    number: int, steps: int = STEPS, streams: tuple[int, ...] = (7,), unreplayed: int = 0, **groups: tuple[float, float]
) -> RankLaunches:
    """One rank; a group is (launches, milliseconds) of a step."""
    named = {"routed": (43.0, 4.5), "dense": (489.0, 9.0), "fused": (0.0, 0.0), "collective": (87.0, 2.5)}
    named |= {"other": (1050.0, 4.0), **groups}
    rows = tuple(
        GroupLaunches(
            name=name,
            launches=round(launches * steps),
            replayed=round(launches * steps) - (unreplayed if name == "dense" else 0),
            time_ns=round(time * steps * MS),
            streams=streams if name == "routed" else (7,),
        )
        for name, (launches, time) in named.items()
    )
    return RankLaunches(
        rank=number, steps=steps, annotated=2 * steps, window_ns=30 * steps * MS, busy_ns=21 * steps * MS, groups=rows
    )


RECORDED = {
    "counting": (506, 481_835),
    "dense": (552, 2_951_768),
    "routed": (138, 2_225_720),
    "collective": (0, 0),
    "other": (5474, 10_218_518),
}
"""Launches and nanoseconds of 46 steps of ``lna2`` on an H200 (order h200-lna2), the routed experts from graphs."""


def recorded(replayed: bool, steps: int = 46) -> RankLaunches:
    """That rank; of its replays the trace's first reading said nothing, because torch 2.11 names no graph nodes."""
    groups = tuple(
        GroupLaunches(
            name=name, launches=count, replayed=count if replayed and name != "other" else 0, time_ns=time, streams=(7,)
        )
        for name, (count, time) in RECORDED.items()
    )
    return RankLaunches(rank=0, steps=steps, annotated=46, window_ns=106_519_795, busy_ns=15_802_218, groups=groups)


def launches() -> list[Case]:
    candidate = window("launches-candidate", "traced", "launches")
    incumbent = window("launches-incumbent", "traced", "launches", "incumbent")

    def own(*ranks: RankLaunches, of: PlannedWindow = candidate, **changes: Any) -> tuple[PlannedWindow, Any]:
        variant = INCUMBENT if of.arm == "incumbent" else "lna2"
        measure = LaunchesMeasure(rows=4, ranks=ranks)
        return of, sample(of, measure, variant, engagement=both(variant)).model_copy(update=changes)

    def one(parameters: dict[str, Any], *ranks: RankLaunches) -> GateInput:
        return given(parameters, TRACED, [own(*ranks)])

    def pair(parameters: dict[str, Any], *ranks: RankLaunches, before: float = 10.0) -> GateInput:
        slow = tuple(rank(number, routed=(43.0, before)) for number in RANKS)
        return given(parameters, TRACED, [own(*slow, of=incumbent), own(*ranks)])

    whole = tuple(map(rank, RANKS))
    exact = {"exactly": {"routed": 43, "dense": 489}}
    limits = {"most": {"all": 1669}, "most_ms": {"dense": 9}, "most_share": {"collective": "0.125"}}
    eager = (rank(0), rank(1, unreplayed=1))
    served = {"exactly": {"routed": 3}, "graphs": ["routed"], "one_stream": ["routed", "dense"]}
    told = {"launches-candidate routed launches": "== 43", "launches-candidate all launches": "<= 1669"}
    told["launches-candidate fused launches"] = ""
    other = own(*whole)[1].model_copy(update={"measure": FinishMeasure(texts=())})
    missing = own(rank(0))[1].model_copy(update={"faults": ("rank 1 left no trace",)})
    return [
        ("as-planned_pass", one(exact | limits, *whole), "PASS", "launches what it should", told),
        ("eight-ranks_pass", _eight(candidate), "PASS", "launches what it should"),
        ("recorded-on-an-h200_pass", one(served, recorded(True)), "PASS", "launches what it should"),
        ("recorded-without-replays_fail", one(served, recorded(False)), "FAIL", "routed was launched outside a graph"),
        ("recorded-without-steps_invalid", one(served, recorded(True, steps=0)), "INVALID", "no step was counted"),
        ("FL-01-its-kernel-never-ran_fail", one(exact, rank(0), rank(1, routed=(0.0, 0.0))), "FAIL", "rank 1: routed"),
        ("FL-04-nothing-fused_fail", one({"exactly": {"fused": 148}}, *whole), "FAIL", "fused launches 0 times"),
        ("FL-07-pool-held-by-prewarm_fail", one({"most": {"dense": 345}}, *whole), "FAIL", "dense: 489 launches"),
        ("FL-08-captured-untuned_fail", one({"exactly": {"fused": 64}}, *whole), "FAIL", "fused launches 0 times"),
        ("FL-30-one-launch-a-row_fail", one({"most": {"routed": 43}}, rank(0, routed=(172.0, 60.0))), "FAIL", "172"),
        ("one-launch-too-many_fail", one(limits, rank(0), rank(1, other=(1051.0, 4.0))), "FAIL", "rank 1: all: 1670"),
        ("one-rank-takes-longer_fail", one(limits, rank(0), rank(1, dense=(489.0, 9.01))), "FAIL", "dense: 9.01 ms"),
        ("ranks-wait-too-long_fail", one(limits, rank(0), rank(1, collective=(87.0, 2.6))), "FAIL", "collective: 0.12"),
        ("FL-23-second-stream_fail", one({"one_stream": ["routed", "dense"]}, rank(0, streams=(7, 9))), "FAIL", "7, 9"),
        ("one-stream_pass", one({"one_stream": ["routed", "dense"]}, *whole), "PASS", "launches what it should"),
        ("launched-beside-the-graph_fail", one({"graphs": ["dense"]}, *eager), "FAIL", "rank 1: dense was launched"),
        ("all-replayed_pass", one({"graphs": ["dense", "all"]}, *whole), "PASS", "launches what it should"),
        ("twice-as-fast_pass", pair({"faster": {"routed": 2}}, *whole), "PASS", "launches what it should"),
        ("exactly-so-much-faster_pass", pair({"faster": {"routed": 2}}, *whole, before=9.0), "PASS", "launches what"),
        ("segment-not-faster_fail", pair({"faster": {"dense": "1.15"}}, *whole), "FAIL", "dense is 1 times faster"),
        ("faster-than-whom_invalid", one({"faster": {"routed": 2}}, *whole), "INVALID", "needs both arms"),
        (
            "only-the-incumbent-is-faster_invalid",
            given({"faster": {"routed": 2}}, TRACED, [own(*whole, of=incumbent)]),
            "INVALID",
            "needs both arms",
        ),
        ("standing-configuration_fail", _alone(incumbent, own), "FAIL", "launches-incumbent, rank 0: dense"),
        ("unknown-group_invalid", one({"most": {"gemm": 1}}, *whole), "INVALID", "no kernels are grouped as gemm"),
        ("unknown-group-on-a-stream_invalid", one({"one_stream": ["gemm"]}, *whole), "INVALID", "grouped as gemm"),
        ("no-step_invalid", one({}, rank(0), rank(1, steps=0)), "INVALID", "no step was counted"),
        ("no-rank_invalid", one({}), "INVALID", "no step was counted"),
        ("rank-without-a-trace_invalid", given({}, TRACED, [(candidate, missing)]), "INVALID", "rank 1 left no trace"),
        ("sample-of-another-kind_invalid", given({}, TRACED, [(candidate, other)]), "INVALID", "no reading for"),
        ("not-measured_invalid", given({}, TRACED, [(candidate, None)]), "NOT_RUN", "no sample"),
        ("unknown-parameter_invalid", one({"steps": 24}, *whole), "INVALID", "steps"),
    ]


def _alone(incumbent: PlannedWindow, own: Any) -> GateInput:
    ranks = tuple(map(rank, RANKS))
    return given({"most": {"dense": 345}}, TRACED, [own(*ranks, of=incumbent)])


def _eight(of: PlannedWindow) -> GateInput:
    engagement = tuple(ran(rank=number) for number in EIGHT)
    measure = LaunchesMeasure(rows=4, ranks=tuple(map(rank, EIGHT)))
    readings = [(of, sample(of, measure, engagement=engagement))]
    return given({"exactly": {"routed": 43}}, TRACED, readings, [boot("traced", EIGHT)])


def steps(number: int, work: int = 20_000, p95: int = 21_000, count: int = STEPS) -> RankSteps:
    """One rank's steps, in microseconds of work."""
    return RankSteps(
        rank=number,
        steps=count,
        work_p50_ns=work * 1000,
        work_p95_ns=p95 * 1000,
        collective_p50_ns=2_500_000,
        step_p50_ns=27_000_000,
        step_p95_ns=28_000_000,
    )


def _run(number: int, *ranks: RankSteps, arm: str = "candidate") -> tuple[PlannedWindow, Any]:
    of = window(f"rank-skew-{arm}-{number}", "traced", "rank-skew", arm)
    variant = INCUMBENT if arm == "incumbent" else "lna2"
    engagement = tuple(ran(variant, one.rank) for one in ranks)
    return of, sample(of, RankSkewMeasure(ranks=ranks), variant, engagement=engagement)


def _runs(parameters: dict[str, Any], *each: Sequence[RankSteps], ranks: Sequence[int] = EIGHT) -> GateInput:
    readings = [_run(number, *one) for number, one in enumerate(each, 1)]
    return given(parameters, TRACED, readings, [boot("traced", ranks)])


def rank_skew() -> list[Case]:
    run, runs = _run, _runs
    even = [steps(number) for number in EIGHT]
    slow = [steps(number, 22_001 if number == 5 else 20_000, 23_000) for number in EIGHT]
    limit = [steps(number, 22_000 if number == 5 else 20_000, 23_000) for number in EIGHT]
    four = [steps(number, 20_000 + number) for number in range(4)]
    idle = [*even[:7], steps(7, 0)]
    unstepped = [*even[:7], steps(7, count=0)]
    both_arms = [run(number, *even, arm=arm) for arm in ("incumbent", "candidate") for number in (1, 2, 3)]
    lopsided = given({}, TRACED, both_arms[:5], [boot("traced", EIGHT)])
    told = {"rank-skew-candidate-1 skew": "<= 0.1"}
    return [
        ("even_pass", runs({}, even, even, even), "PASS", "no rank stays behind", told),
        ("at-the-limit_pass", runs({}, limit, even, even), "PASS", "slowest is rank 0, 5"),
        ("four-ranks_pass", runs({}, four, four, four, ranks=range(4)), "PASS", "slowest is rank 3"),
        ("both-arms_pass", given({}, TRACED, both_arms, [boot("traced", EIGHT)]), "PASS", "no rank stays behind"),
        ("rank-5-stays-behind_fail", runs({}, slow, slow, slow), "FAIL", "rank 5 takes 10.01% longer"),
        ("one-run-of-three_fail", runs({}, even, slow, even), "FAIL", "rank-skew-candidate-2: rank 5"),
        ("spread-within-a-rank_fail", runs({"spread": "1.04"}, even, even, even), "FAIL", "p95 of rank 0 is 1.050"),
        ("spread-at-the-limit_pass", runs({"spread": "1.05"}, even, even, even), "PASS", "no rank stays behind"),
        ("two-runs_invalid", runs({}, even, even), "INVALID", "2 runs of the candidate, at least 3"),
        ("two-runs-of-one-arm_invalid", lopsided, "INVALID", "2 runs of the candidate"),
        ("H8-rank-0-for-all_invalid", runs({}, even[:1], even[:1], even[:1]), "INVALID", "rank 1 is missing"),
        ("a-rank-did-nothing_invalid", runs({}, even, even, idle), "INVALID", "a rank without a step"),
        ("a-rank-without-steps_invalid", runs({}, even, even, unstepped), "INVALID", "a rank without a step"),
        ("no-rank_invalid", _empty(), "INVALID", "a rank without a step"),
        ("unknown-parameter_invalid", runs({"limit": 1}, even, even, even), "INVALID", "limit"),
    ]


def rank_skew_of_others() -> list[Case]:
    """Version 2."""

    def both(slow: int, parameters: dict[str, Any] | None = None) -> GateInput:
        return _runs(parameters or {}, *[[steps(0), steps(1, slow, slow + 1000)]] * 3, ranks=(0, 1))

    even = [steps(number) for number in EIGHT]
    slow = [steps(number, 22_001 if number == 5 else 20_000, 23_000) for number in EIGHT]
    limit = [steps(number, 22_000 if number == 5 else 20_000, 23_000) for number in EIGHT]
    three = [steps(0), steps(1, 21_000), steps(2, 22_001, 23_000)]
    both_arms = [_run(number, *even, arm=arm) for arm in ("incumbent", "candidate") for number in (1, 2, 3)]
    told = {"rank-skew-candidate-1 skew": "<= 0.1"}
    return [
        ("even_pass", _runs({}, even, even, even), "PASS", "no rank stays behind", told),
        ("at-the-limit_pass", _runs({}, limit, even, even), "PASS", "slowest is rank 5, 7"),
        ("both-arms_pass", given({}, TRACED, both_arms, [boot("traced", EIGHT)]), "PASS", "no rank stays behind"),
        ("two-ranks-at-the-limit_pass", both(22_000), "PASS", "slowest is rank 1"),
        ("the-middle-of-three-others_pass", _runs({}, three, three, three, ranks=(0, 1, 2)), "PASS", "rank 2"),
        ("spread-at-the-limit_pass", _runs({"spread": "1.05"}, even, even, even), "PASS", "no rank stays behind"),
        (
            "one-of-two-ranks-is-slow_fail",
            both(22_001),
            "FAIL",
            "rank 1 takes 10.01% longer than the median of the others",
        ),
        ("a-slow-rank-is-half-of-the-median_fail", both(24_400), "FAIL", "rank 1 takes 22.00% longer"),
        ("rank-5-stays-behind_fail", _runs({}, slow, slow, slow), "FAIL", "rank 5 takes 10.01% longer"),
        ("one-run-of-three_fail", _runs({}, even, slow, even), "FAIL", "rank-skew-candidate-2: rank 5"),
        ("spread-within-a-rank_fail", _runs({"spread": "1.04"}, even, even, even), "FAIL", "p95 of rank 0 is 1.050"),
        ("one-rank_invalid", _runs({}, *[even[:1]] * 3, ranks=(0,)), "INVALID", "none that it could be compared with"),
        ("two-runs_invalid", _runs({}, even, even), "INVALID", "2 runs of the candidate, at least 3"),
        ("H8-rank-0-for-all_invalid", _runs({}, *[even[:1]] * 3), "INVALID", "rank 1 is missing"),
        ("no-rank_invalid", _empty(), "INVALID", "a rank without a step"),
        ("unknown-parameter_invalid", _runs({"limit": 1}, even, even, even), "INVALID", "limit"),
    ]


def _empty() -> GateInput:
    of = [window(f"rank-skew-candidate-{number}", "traced", "rank-skew") for number in (1, 2, 3)]
    return given({}, TRACED, [(one, sample(one, RankSkewMeasure(ranks=()))) for one in of])


def eager_gap() -> list[Case]:
    boots = {"shared-b": "shared", "eager": "eager"}

    def blocks(engine: str, gain: float, rounds: int = 3, at: str = "", rate: float = 100.0) -> list[Any]:
        found = []
        for number in range(1, rounds + 1):
            for arm, speed in (("incumbent", rate), ("candidate", rate * gain)):
                of = window(
                    f"eager-gap-{engine}-{number}-{arm}",
                    at or ("shared-b" if engine == "graphs" else "eager"),
                    "speed",
                    arm,
                    arguments={"engine": engine, "round": number},
                )
                variant = INCUMBENT if arm == "incumbent" else "lna2"
                found.append((of, sample(of, block(speed, number), variant)))
        return found

    def one(graphs: list[Any], eager: list[Any], **parameters: Any) -> GateInput:
        return given(parameters, boots, [*graphs, *eager])

    fast, eager = blocks("graphs", 1.5), blocks("eager", 1.5, rate=40.0)
    lopsided = [one_ for one_ in fast if one_[0].id != "eager-gap-graphs-3-candidate"]
    mixed = [*blocks("graphs", 1.5, 2), *blocks("graphs", 1.5, 3, at="eager")[4:]]
    other = (fast[0][0], fast[0][1].model_copy(update={"measure": FinishMeasure(texts=())}))
    told = {"gain that graphs take away": "<= 0.05"}
    return [
        ("kept_pass", one(fast, eager), "PASS", "graphs keep the gain", told),
        ("graphs-add-to-it_pass", one(blocks("graphs", 2.0), eager), "PASS", "graphs keep the gain"),
        ("a-little-lost_pass", one(blocks("graphs", 1.44), eager), "PASS", "graphs keep the gain"),
        (
            "slower-and-no-more-with-graphs_pass",
            one(blocks("graphs", 0.9), blocks("eager", 0.9)),
            "PASS",
            "graphs keep",
        ),
        (
            "FL-08-captured-untuned_fail",
            one(blocks("graphs", 1.0), eager),
            "FAIL",
            "1.500 times as fast without graphs",
        ),
        ("half-of-it-lost_fail", one(blocks("graphs", 1.25), eager), "FAIL", "1.250 times with them"),
        ("FL-07-eager-alone-runs-it_fail", one(blocks("graphs", 0.8), eager), "FAIL", "0.800 times with them"),
        ("two-rounds_invalid", one(blocks("graphs", 1.5, 2), eager), "INVALID", "graphs: 2 rounds"),
        ("two-rounds-are-enough_pass", one(blocks("graphs", 1.5, 2), eager, rounds=2), "PASS", "graphs keep"),
        ("a-block-is-missing_invalid", one(lopsided, eager), "INVALID", "3 rounds of the incumbent and 2"),
        ("no-eager-boot_invalid", given({}, boots, fast), "INVALID", "eager: 0 rounds"),
        ("no-rate_invalid", one(blocks("graphs", 1e-9), eager), "INVALID", "graphs: a block without a rate"),
        ("blocks-of-two-boots_invalid", one(mixed, eager), "INVALID", "graphs: blocks of several boots"),
        ("sample-of-another-kind_invalid", given({}, boots, [other]), "INVALID", "no reading for"),
        ("not-measured_invalid", given({}, boots, [(fast[0][0], None)]), "NOT_RUN", "no sample"),
        ("unknown-parameter_invalid", one(fast, eager, gap=1), "INVALID", "gap"),
    ]
