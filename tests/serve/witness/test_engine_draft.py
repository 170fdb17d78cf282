"""One real vLLM boot with speculation: the draft (MTP) layer is served through the plugin and counted."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from serve.adapters.process import ProcessSeat
from tests.serve.engine_boot import LAYERS, complete, document, request

pytestmark = pytest.mark.engine

DRAFT_LAYER = "model.layers.3.mlp.experts"


def test_the_draft_layer_is_served_and_counted(tmp_path: Path) -> None:
    asked = request(tmp_path)
    manifest = asked.manifest.model_copy(
        update={"pack": "generate:recipe.mini.random_pack:layers=3,draft_layers=1", "name": "cpu-mini-random-draft"}
    )
    speculation = {"speculative_config": {"method": "mtp", "num_speculative_tokens": 1}}
    planned = asked.planned.model_copy(update={"arguments": speculation})
    engine = ProcessSeat().boot(replace(asked, manifest=manifest, planned=planned))
    try:
        engine.switch("lna2")
        choice = complete(engine, prompt=document(9), max_tokens=24, return_token_ids=True)
        assert len(choice["token_ids"]) == 24
        assert engine.record.resolved["speculative_method"] == "mtp"
        (counters,) = engine.counters()
        launched = {row.layer for row in counters.witness if (row.variant, row.op) == ("lna2", "routed_experts")}
        assert launched == {*LAYERS, DRAFT_LAYER}
        drafted = re.search(
            r"vllm:spec_decode_num_draft_tokens_total\{[^}]*\} ([\d.]+)", engine.http.get("/metrics").text
        )
        assert drafted is not None
        assert float(drafted[1]) >= 12
    finally:
        record = engine.stop()
    assert (record.ended, record.leftovers) == ("stopped", ())
