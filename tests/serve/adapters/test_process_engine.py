"""Ends of a real engine under strict: refused at the start, and in service at a decline that is not allowed."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from runner.errors import SeatError
from tests.serve.engine_boot import boot

pytestmark = pytest.mark.engine


def test_strict_refuses_to_start_with_a_library_that_is_not_ready(tmp_path: Path) -> None:
    with pytest.raises(SeatError) as refusal:
        boot(tmp_path, strict=2, variants=("incumbent", "knock-out-decline"))
    assert refusal.value.found == (
        "carve strict 2: variant knock-out-decline is not ready on rank 0, layer model.layers.1.mlp.experts"
    )


def test_strict_2_ends_the_engine_at_a_decline_that_is_not_allowed(tmp_path: Path) -> None:
    engine = boot(tmp_path, strict=2, variants=("incumbent", "silent-fallback"))
    try:
        engine.switch("silent-fallback")
        body = {"model": "mini", "prompt": [5], "max_tokens": 2}
        assert engine.http.post("/v1/completions", json=body).status_code == 500
        limit = time.monotonic() + 60
        while engine.process.poll() is None and time.monotonic() < limit:
            time.sleep(0.1)
        with pytest.raises(SeatError, match="does not answer"):
            engine.counters()
    finally:
        record = engine.stop()
    assert record.ended == "refused"
    where = "rank 0, layer model.layers.1.mlp.experts, rows 1"
    assert record.ended_reason == f"carve strict 2: variant silent-fallback declined on {where}: shape"
    assert record.leftovers == ()
