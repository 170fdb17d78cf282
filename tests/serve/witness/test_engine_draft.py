"""Real engine with speculation: the draft (MTP) layer is served through the plugin, counted, and useful."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from serve.adapters.booted import BootedEngine
from tests.serve.engine_boot import LAYERS, boot, complete, document, stop_clean

pytestmark = pytest.mark.engine

DRAFT_LAYER = "model.layers.4.mlp.experts"
MTP = {"speculative_config": {"method": "mtp", "num_speculative_tokens": 1}}


def total(engine: BootedEngine, family: str) -> float:
    """A counter of ``/metrics``."""
    found = re.search(
        rf"vllm:spec_decode_num_{family}_tokens_total\{{[^}}]*\}} ([\d.]+)", engine.http.get("/metrics").text
    )
    assert found is not None
    return float(found[1])


def test_the_draft_layer_is_served_and_counted(tmp_path: Path) -> None:
    engine = boot(tmp_path, arguments=MTP)
    try:
        engine.switch("lna2")
        choice = complete(engine, prompt=document(9), max_tokens=24, return_token_ids=True)
        assert len(choice["token_ids"]) == 24
        assert engine.record.resolved["speculative_method"] == "mtp"
        (counters,) = engine.counters()
        launched = {row.layer for row in counters.witness if (row.variant, row.op) == ("lna2", "routed_experts")}
        assert launched == {*LAYERS, DRAFT_LAYER}
        assert total(engine, "draft") >= 12
        assert total(engine, "accepted") >= 1
    finally:
        stop_clean(engine)
