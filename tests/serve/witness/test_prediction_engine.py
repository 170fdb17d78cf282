"""What was predicted before the boot beside what the live engine holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from recipe.pack import read_pack
from runner.steps.seats import load_manifest
from serve.adapters.booted import BootedEngine
from serve.prediction import RankPrediction, predict
from tests.serve.engine_boot import PACK, boot, stop_clean

pytestmark = pytest.mark.engine
WITHIN = 0.02


def compare(engine: BootedEngine, predicted: tuple[RankPrediction, ...]) -> None:
    """Every rank within 2 %."""
    live = engine.call("resolved")
    assert len(live) == len(predicted)
    for rank, held in zip(predicted, live, strict=True):
        assert held["weights_bytes"] == pytest.approx(rank.weights_bytes, rel=WITHIN)
        assert held["kv_cache_tokens"] == pytest.approx(rank.kv_tokens, rel=WITHIN)
        assert held.get("scratch_bytes", 0) == rank.scratch_bytes


def test_one_rank_holds_what_was_predicted(engine: BootedEngine) -> None:
    compare(engine, predict(read_pack(PACK), load_manifest("cpu-mini").arguments))


def test_two_ranks_hold_what_was_predicted(tmp_path: Path) -> None:
    running = boot(tmp_path / "two", ranks=2)
    try:
        compare(running, predict(read_pack(PACK), load_manifest("cpu-mini-tp2").arguments))
    finally:
        stop_clean(running)
