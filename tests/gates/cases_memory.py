"""Cases of the gate about memory, in both versions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runner.gates.base import GateInput
from runner.model.answer_measure import MemoryMeasure, RankMemory
from tests.gates.build import Case, given, sample, window
from tests.gates.cases_answers import other

GIB = 1 << 30
CANDIDATE_ONLY = {"candidate-only": "candidate-only"}
WEIGHTS, SCRATCH, KV = 12 * GIB, 5_088_640, 395_069
HELD = {"weights_bytes": WEIGHTS, "scratch_bytes": SCRATCH, "graph_bytes": 40 << 20, "kv_cache_tokens": KV}


def memory() -> list[Case]:
    of = window("memory", "candidate-only", "memory")

    def one(parameters: dict[str, Any], *ranks: Mapping[str, int], foretold: Mapping[str, int] = HELD) -> GateInput:
        rows = tuple(
            RankMemory(rank=number, predicted=dict(foretold), live=dict(HELD) | dict(live))
            for number, live in enumerate(ranks)
        )
        return given(parameters, CANDIDATE_ONLY, [(of, sample(of, MemoryMeasure(ranks=rows)))])

    def lacking(name: str) -> GateInput:
        live = {key: value for key, value in HELD.items() if key != name}
        rows = tuple(RankMemory(rank=number, predicted=live, live=live) for number in (0, 1))
        return given({"predicted": list(HELD)}, CANDIDATE_ONLY, [(of, sample(of, MemoryMeasure(ranks=rows)))])

    def foretold_by(*ranks: Mapping[str, int]) -> GateInput:
        rows = tuple(RankMemory(rank=at, predicted=dict(one), live=dict(HELD)) for at, one in enumerate(ranks))
        return given({}, CANDIDATE_ONLY, [(of, sample(of, MemoryMeasure(ranks=rows)))])

    reading = (of, sample(of, MemoryMeasure(ranks=())))
    edge = {"weights_bytes": WEIGHTS + WEIGHTS // 50}
    by_layer = {"scratch_bytes": 72 * SCRATCH}
    buffers = {"kv_cache_tokens": 29_184}
    all_four = {"predicted": list(HELD)}
    told = {"memory weights_bytes off": "<= 0.02"}
    return [
        ("as-predicted_pass", one(all_four, {}, {}), "PASS", "holds what was predicted", told),
        ("two-per-cent-off_pass", one({}, {}, edge), "PASS", "holds what was predicted"),
        (
            "limits-met_pass",
            one({"most": {"scratch_bytes": SCRATCH}, "least": {"kv_cache_tokens": KV}}, {}, {}),
            "PASS",
            "",
        ),
        (
            "more-weights-than-predicted_fail",
            one({}, {}, {"weights_bytes": edge["weights_bytes"] + 1}),
            "FAIL",
            "rank 1",
        ),
        ("fewer-weights-than-predicted_fail", one({}, {"weights_bytes": WEIGHTS // 2}, {}), "FAIL", "rank 0: weights"),
        ("FL-31-scratch-for-each-layer_fail", one(all_four, {}, by_layer), "FAIL", "scratch_bytes is 366382080"),
        ("FL-33-buffers-for-every-row-count_fail", one({}, buffers, buffers), "FAIL", "kv_cache_tokens is 29184"),
        (
            "FL-32-second-stream_fail",
            one({"most": {"scratch_bytes": SCRATCH}}, {}, {"scratch_bytes": SCRATCH + 1}),
            "FAIL",
            "at most",
        ),
        ("window-does-not-fit_fail", one({"least": {"kv_cache_tokens": KV + 1}}, {}, {}), "FAIL", "at least 395070"),
        ("graphs-not-read-back_invalid", lacking("graph_bytes"), "INVALID", "nothing is known of graph_bytes"),
        (
            "limit-of-an-unknown-name_invalid",
            one({"most": {"pool_bytes": 1}}, {}, {}),
            "INVALID",
            "known of pool_bytes",
        ),
        (
            "least-of-an-unknown-name_invalid",
            one({"least": {"pool_bytes": 1}}, {}, {}),
            "INVALID",
            "known of pool_bytes",
        ),
        ("more-predicted_invalid", foretold_by(dict(HELD) | {"pool": 1}, HELD), "INVALID", "nothing is known of pool"),
        ("one-rank-predicted_invalid", foretold_by(HELD, {}), "INVALID", "nothing is known of graph_bytes"),
        ("no-rank_invalid", given({}, CANDIDATE_ONLY, [reading]), "INVALID", "nothing is known of any rank"),
        ("sample-of-another-kind_invalid", given({}, CANDIDATE_ONLY, [other(reading)]), "INVALID", "no reading for"),
        ("not-measured_invalid", given({}, CANDIDATE_ONLY, [(of, None)]), "NOT_RUN", "no sample"),
        ("unknown-parameter_invalid", one({"gib": 1}, {}, {}), "INVALID", "gib"),
    ]


def memory_predicted() -> list[Case]:
    """Version 2."""
    of = window("memory", "candidate-only", "memory")
    needed = {"predicted": list(HELD)}

    def one(
        parameters: dict[str, Any],
        live: Mapping[str, int],
        *foretold: Mapping[str, int],
        numbers: tuple[int, ...] = (0, 1),
    ) -> GateInput:
        rows = tuple(
            RankMemory(rank=number, predicted=dict(known), live=dict(HELD) | dict(live))
            for number, known in zip(numbers, foretold, strict=True)
        )
        return given(parameters, CANDIDATE_ONLY, [(of, sample(of, MemoryMeasure(ranks=rows)))])

    def without(name: str) -> dict[str, int]:
        return {key: value for key, value in HELD.items() if key != name}

    outside = {"outside_bytes": 2 << 30}
    limited = {"predicted": [], "most": {"outside_bytes": 3 << 30}}
    told = {"memory weights_bytes off": "<= 0.02"}
    huge = {"weights_bytes": 10**15}
    return [
        ("as-predicted_pass", one(needed, {}, HELD, HELD), "PASS", "holds what was predicted", told),
        ("more-is-predicted-than-is-needed_pass", one({}, {}, HELD, HELD), "PASS", "holds what was predicted", told),
        ("a-limit-needs-no-prediction_pass", one(limited, outside, {}, {}), "PASS", ""),
        (
            "a-least-needs-no-prediction_pass",
            one({"predicted": [], "least": {"kv_cache_tokens": KV}}, {}, {}, {}),
            "PASS",
            "",
        ),
        (
            "more-than-predicted_fail",
            one(needed, huge, HELD, HELD),
            "FAIL",
            "rank 0: weights_bytes is 1000000000000000",
        ),
        (
            "fewer-than-predicted_fail",
            one({}, {"kv_cache_tokens": KV // 2}, HELD, HELD),
            "FAIL",
            "rank 1: kv_cache_tokens",
        ),
        ("above-its-limit_fail", one(limited, {"outside_bytes": 4 << 30}, {}, {}), "FAIL", "outside_bytes"),
        (
            "nothing-was-predicted_invalid",
            one({}, huge, {}, {}),
            "INVALID",
            "rank 1: nothing was predicted of weights_bytes",
        ),
        (
            "scratch-was-not-predicted_invalid",
            one(needed, {}, without("scratch_bytes"), without("scratch_bytes")),
            "INVALID",
            "rank 0: nothing was predicted of scratch_bytes",
        ),
        (
            "one-rank-was-not-predicted_invalid",
            one(needed, {}, HELD, without("graph_bytes")),
            "INVALID",
            "rank 1: nothing was predicted of graph_bytes",
        ),
        (
            "not-read-back_invalid",
            one({"predicted": ["pool_bytes"]}, {}, dict(HELD) | {"pool_bytes": 1}, dict(HELD) | {"pool_bytes": 1}),
            "INVALID",
            "known of pool_bytes",
        ),
        ("limit-of-an-unknown-name_invalid", one(limited, {}, HELD, HELD), "INVALID", "known of outside_bytes"),
        ("nothing-is-judged_invalid", one({"predicted": []}, huge, {}, {}), "INVALID", "nothing would be judged"),
        ("rank-0-for-both_invalid", one({}, {}, HELD, numbers=(0,)), "INVALID", "not every rank"),
        ("one-rank-twice_invalid", one({}, {}, HELD, HELD, numbers=(0, 0)), "INVALID", "or one twice"),
        ("no-rank_invalid", one({}, {}, numbers=()), "INVALID", "not every rank"),
        ("not-measured_invalid", given({}, CANDIDATE_ONLY, [(of, None)]), "NOT_RUN", "no sample"),
        ("unknown-parameter_invalid", one({"gib": 1}, {}, HELD, HELD), "INVALID", "gib"),
    ]
