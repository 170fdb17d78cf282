"""Cases of the instruments that read reduced profiler traces."""

from __future__ import annotations

from typing import Any

from runner.model.plan import PlannedWindow
from runner.model.trace import KernelRow, RankTrace, StepRow
from tests.instruments.build import Case, counters, evidence, window

STEPS = 24
LAYER_KERNELS = ["lna2_kernel<2>*", "lna2_kernel<3>*"]
GROUPS = {"routed": ["lna2_kernel<*"], "dense": ["exl3_gemm*", "exl3_mgemm*"]}
ARGUMENTS: dict[str, Any] = {"layer_kernels": LAYER_KERNELS, "groups": GROUPS}
K2 = "lna2_kernel<2>(half*)"
COUNTS = {
    K2: 43 * STEPS,
    "lna2_kernel<3>(half*)": 3 * STEPS,
    "exl3_gemm_kernel<6>": 489 * STEPS,
    "ncclDevKernel_AllReduce_Sum_bf16": 87 * STEPS,
    "argmax": STEPS,
}
LINEAR = {"op": "linear", "layer": "model.layers.0.mlp.down_proj", "launches": 1, "rows": ((4, 1),)}
"""Of the campaign's step: 1,032 and 72 launches of kernels that run once a layer make 24 steps."""


def trace(rank: int = 0, ranks: int = 1, **changes: Any) -> RankTrace:
    """One rank's reduced trace; ``counts`` maps kernels to launches, ``annotated`` is the number of steps marked."""
    counts, annotated = changes.pop("counts", COUNTS), changes.pop("annotated", STEPS)
    rows = tuple(
        KernelRow(name=name, launches=count, replayed=count, time_ns=count * 1000, streams=(7,))
        for name, count in counts.items()
    )
    steps = tuple(
        StepRow(at_ns=1000 * at * (at + 1), launches=600, work_ns=5000 + at * (1 + rank), collective_ns=100 + at)
        for at in range(annotated)
    )
    told = RankTrace(
        rank=rank,
        ranks=ranks,
        digest="b" * 64,
        size=1 << 20,
        window_ns=1000 * STEPS * (STEPS + 1),
        busy_ns=400_000,
        kernels=rows,
        steps=steps,
        rows=(4,) * annotated,
        captures=0,
    )
    return told.model_copy(update=changes)


def _one(of: PlannedWindow, *traces: RankTrace, ranks: int = 1, launches: int = STEPS, **parts: Any) -> Any:
    read = {
        "counters_before": tuple(counters(5, rank) for rank in range(ranks)),
        "counters_after": tuple(counters(5 + launches, rank) for rank in range(ranks)),
        "facts": {"traces": [one.model_dump_json() for one in traces]},
    }
    return [evidence(of, **(read | parts))]


def _common(of: PlannedWindow) -> list[Case]:
    """What keeps traces from counting, whatever is read from them."""
    pair = (trace(0, 2), trace(1, 2))
    without = of.model_copy(update={"arguments": {"groups": GROUPS}})
    by_arm, others = (
        of.model_copy(update={"arguments": ARGUMENTS | {"layer_kernels": {arm: LAYER_KERNELS}}})
        for arm in ("candidate", "incumbent")
    )
    torn: dict[str, Any] = {"facts": {"traces": ["{}"]}}
    return [
        ("two-ranks_pass", _one(of, *pair, ranks=2), of, None),
        ("named-by-arm_pass", _one(by_arm, trace()), by_arm, None),
        ("another-arm-alone-is-named_fail", _one(others, trace()), others, "no list of kernel patterns"),
        ("out-of-order_pass", _one(of, *reversed(pair), ranks=2), of, None),
        ("FL-59-rank-0-stands-for-all_fail", _one(of, trace(), ranks=2), of, "rank 1 left no trace"),
        ("trace-names-more-ranks_fail", _one(of, trace(0, 2)), of, "rank 1 left no trace"),
        ("two-traces-of-a-rank_fail", _one(of, trace(), trace()), of, "rank 0 left 2 traces"),
        ("FL-27-captured-meanwhile_fail", _one(of, trace(captures=3)), of, "3 graphs were captured inside the window"),
        ("FL-07-prewarmed-meanwhile_fail", _one(of, trace(), **_warmed(1)), of, "warmed up inside the window"),
        ("prewarmed-before_pass", _one(of, trace(), **_warmed(0)), of, None),
        ("no-trace_fail", _one(of, facts={"traces": []}), of, "no rank left a trace"),
        ("traces-are-text_fail", _one(of, facts={"traces": "x"}), of, "no rank left a trace"),
        ("never-profiled_fail", _one(of, facts={}), of, "lacks what this instrument reads"),
        ("torn-trace_fail", _one(of, **torn), of, "a reduced trace cannot be read"),
        ("kernels-not-named_fail", _one(without, trace()), without, "no list of kernel patterns"),
        (
            "FL-01-layer-kernel-never-ran_fail",
            _one(of, _unran()),
            of,
            "no kernel lna2_kernel<3>* ran",
        ),
    ]


def _warmed(meanwhile: int) -> dict[str, Any]:
    """Counters of an engine that warmed up before the window, and so many times inside it."""
    before, after = counters(5), counters(5 + STEPS)
    warm = [before.witness[0].model_copy(update={"launches": count}) for count in (3, 3 + meanwhile)]
    return {
        "counters_before": (before.model_copy(update={"prewarm": (warm[0],)}),),
        "counters_after": (after.model_copy(update={"prewarm": (warm[1],)}),),
    }


def _unran() -> RankTrace:
    return trace(counts={name: count for name, count in COUNTS.items() if "<3>" not in name})


def launches() -> list[Case]:
    of = window("launches", arguments=ARGUMENTS)
    listed = of.model_copy(update={"arguments": ARGUMENTS | {"groups": ["routed"]}})
    numbers = of.model_copy(update={"arguments": ARGUMENTS | {"groups": {"routed": [1]}}})
    empty = of.model_copy(update={"arguments": ARGUMENTS | {"groups": {"routed": []}}})
    uneven = trace(1, 2, counts={name: count * 2 for name, count in COUNTS.items()})
    of_one = of.model_copy(update={"arguments": ARGUMENTS | {"layer_kernels": LAYER_KERNELS[:1]}})
    eight = [trace(rank, 8) for rank in range(8)]
    pair = (trace(0, 2), trace(1, 2))
    stood_still: dict[str, Any] = {"counters_after": (counters(5 + 2 * STEPS), counters(5, 1))}
    linear = counters(5 + STEPS)
    linear = linear.model_copy(update={"witness": (*linear.witness, linear.witness[0].model_copy(update=LINEAR))})
    return [
        *_common(of),
        ("eight-ranks_pass", _one(of, *eight, ranks=8), of, None),
        ("FL-51-annotated-twice_pass", _one(of, trace(annotated=46)), of, None),
        (
            "other-steps-on-a-rank_fail",
            _one(of, trace(0, 2), uneven, ranks=2, counters_after=(counters(5 + STEPS), counters(5 + 2 * STEPS, 1))),
            of,
            "24 on rank 0, 48 on",
        ),
        (
            "witness-counted-less_fail",
            _one(of, trace(), launches=STEPS - 1),
            of,
            "the divisor 24, the witness counted 23",
        ),
        ("witness-counted-nothing_fail", _one(of, trace(), launches=0), of, "the witness counted 0 of a layer"),
        ("no-witness_fail", _one(of, trace(), counters_before=(), counters_after=()), of, "witness counted 0"),
        ("trace-of-a-third_fail", _one(of, trace(), launches=STEPS * 3 // 2 + 1), of, "the witness counted 37"),
        ("trace-of-two-thirds_pass", _one(of, trace(), launches=STEPS * 3 // 2), of, None),
        ("one-kernel-in-43-layers_pass", _one(of_one, trace(counts={K2: 43 * STEPS})), of_one, None),
        ("witness-of-a-rank-stood-still_fail", _one(of, *pair, ranks=2, **stood_still), of, "rank 1: launches in"),
        ("a-linear-runs-less-often_pass", _one(of, trace(), counters_after=(linear,)), of, None),
        ("groups-are-a-list_fail", _one(listed, trace()), listed, "groups must map"),
        ("pattern-is-a-number_fail", _one(numbers, trace()), numbers, "no list of kernel patterns"),
        ("group-without-a-pattern_fail", _one(empty, trace()), empty, "no list of kernel patterns"),
        ("not-one-step_pass", _one(of, trace(annotated=0)), of, None),
    ]


def rank_skew() -> list[Case]:
    of = window("rank-skew", arguments=ARGUMENTS)
    return [
        *_common(of),
        (
            "FL-51-annotated-twice_fail",
            _one(of, trace(annotated=46)),
            of,
            "24 steps by kernel counts, 46 are annotated",
        ),
        ("nothing-annotated_fail", _one(of, trace(annotated=0)), of, "24 steps by kernel counts, 0 are annotated"),
    ]
