"""One rank of the real engine: what it serves, what the witness counts, and what moves the output."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from runner.errors import SeatError
from runner.model.evidence import RankCounters
from serve.adapters.booted import BootedEngine
from serve.adapters.engine_command import requested
from tests.serve.engine_boot import LAYERS, VARIANTS, assert_predicted, complete, document, forced, request, worst

pytestmark = pytest.mark.engine


def launches(engine: BootedEngine, variant: str, side: str = "witness") -> dict[str, dict[int, int]]:
    """Routed launches of a variant by layer: rows to number."""
    (counters,) = engine.counters()
    rows = getattr(counters, side)
    return {row.layer: dict(row.rows) for row in rows if (row.op, row.variant) == ("routed_experts", variant)}


def difference(before: dict[str, dict[int, int]], after: dict[str, dict[int, int]]) -> dict[str, dict[int, int]]:
    """What was added, by layer and rows."""
    changed = {}
    for layer, rows in after.items():
        added = {count: number - before.get(layer, {}).get(count, 0) for count, number in rows.items()}
        if added := {count: number for count, number in added.items() if number}:
            changed[layer] = added
    return changed


def test_identity_is_read_from_the_live_engine(engine: BootedEngine) -> None:
    record = engine.record
    assert record.label == "cpu"
    assert record.canary
    assert record.kv_tokens == record.resolved["kv_cache_tokens"]
    assert record.kv_tokens > 4096
    (rank,) = record.ranks
    assert set(rank.libraries) == set(VARIANTS)
    assert len(set(rank.libraries.values())) == len(VARIANTS)
    assert set(rank.trees) == {"plugin", "witness"}


def test_it_holds_what_was_predicted(engine: BootedEngine) -> None:
    assert_predicted(engine, "cpu-mini")


def test_resolved_equals_requested(engine: BootedEngine, tmp_path: Path) -> None:
    wanted = requested(request(tmp_path))
    assert {name: engine.record.resolved.get(name) for name in wanted} == wanted


def test_every_step_and_layer_is_counted_exactly(engine: BootedEngine) -> None:
    engine.switch("incumbent")
    before = launches(engine, "incumbent")
    complete(engine, prompt=document(7), max_tokens=5)
    assert difference(before, launches(engine, "incumbent")) == {layer: {7: 1, 1: 4} for layer in LAYERS}


def test_candidate_and_witness_agree_and_declines_are_typed(engine: BootedEngine) -> None:
    engine.switch("lna2")
    before, own = launches(engine, "lna2"), launches(engine, "lna2", "candidate")
    fallback = launches(engine, "incumbent")
    complete(engine, prompt=document(100), max_tokens=5)
    added = difference(before, launches(engine, "lna2"))
    assert added == {layer: {1: 4} for layer in LAYERS}
    assert difference(own, launches(engine, "lna2", "candidate")) == added
    assert difference(fallback, launches(engine, "incumbent")) == {layer: {65: 1} for layer in LAYERS}
    (counters,) = engine.counters()
    declined = {(row.variant, row.layer, row.reason) for row in counters.declines}
    assert declined == {("lna2", layer, "rows-above-limit") for layer in LAYERS}


def test_one_wrong_percent_shows(engine: BootedEngine) -> None:
    ids = document(33)
    engine.switch("incumbent")
    right = forced(engine, ids)
    engine.switch("lna2")
    assert worst(right, forced(engine, ids)) < 2e-3
    engine.switch("incumbent-watermark")
    assert worst(right, forced(engine, ids)) > 5e-3
    engine.switch("incumbent")
    assert worst(right, forced(engine, ids)) == 0.0


@pytest.mark.parametrize("projection", ["gate", "up", "down"])
def test_perturbation_moves_the_output_and_is_taken_back(engine: BootedEngine, projection: str) -> None:
    ids = document(65)
    engine.switch("lna2")
    right = forced(engine, ids)
    change = {"rank": 0, "layer": LAYERS[0], "expert": 2, "projection": projection, "factor": 1.25}
    assert engine.call("perturb", change) == [{"rank": 0, "perturbed": True}]
    try:
        assert worst(right, forced(engine, ids)) > 1e-2
    finally:
        engine.call("unperturb")
    assert worst(right, forced(engine, ids)) == 0.0
    assert engine.call("identity")[0]["weights"] == engine.record.ranks[0].weights


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"method": "restart", "arguments": {}}, "unknown"),
        ({"method": "switch", "arguments": {"variant": "nobody"}}, "no library for variant 'nobody'"),
        ({"method": "switch", "arguments": {"variant": "lna2", "extra": 1}}, "extra"),
        (
            {
                "method": "perturb",
                "arguments": {"rank": 0, "layer": "model.layers.0.mlp", "expert": 0, "projection": "up", "factor": 2.0},
            },
            "no routed experts",
        ),
        (
            {
                "method": "perturb",
                "arguments": {"rank": 0, "layer": LAYERS[0], "expert": 99, "projection": "up", "factor": 2.0},
            },
            "has experts 0 to",
        ),
    ],
)
def test_bad_calls_answer_400_and_change_nothing(engine: BootedEngine, body: dict[str, Any], words: str) -> None:
    answer = engine.http.post("/carve/call", json=body)
    assert answer.status_code == 400
    assert words in answer.json()["error"]
    assert len(engine.counters()) == 1


@pytest.mark.parametrize("ids", ["5 6", [5, "6"], [5, -1], [5]])
def test_force_refuses_what_is_no_list_of_ids(engine: BootedEngine, ids: Any) -> None:
    body = {"model": "mini", "prompt": [5], "max_tokens": 2, "vllm_xargs": {"force_ids": ids}}
    answer = engine.http.post("/v1/completions", json=body)
    assert answer.status_code == 400
    assert "force_ids" in answer.text


def test_counters_are_the_shared_record(engine: BootedEngine) -> None:
    (answer,) = engine.call("counters")
    assert RankCounters.model_validate_json(json.dumps(answer)).rank == 0


def test_an_unknown_method_is_an_error_for_the_runner(engine: BootedEngine) -> None:
    with pytest.raises(SeatError, match="refused 'restart'"):
        engine.call("restart")
