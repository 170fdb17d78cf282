"""Predictions beside what boots on an H200 read back: weights, scratch and KV tokens."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from carve_kernels.cuda.registry import VARIANTS
from carve_kernels.registry import Role

from recipe.pack import read_pack
from runner.errors import InputError
from runner.paths import source_root
from runner.plan_text import draft
from serve.client import memory
from serve.prediction import kv_bytes_per_token, predict
from serve.scratch import SLOTS, scratch_of, without_rule
from serve.witness import device_counts

H200 = {"processors": 132, "groups": 16}
BOOTS = json.loads((Path(__file__).parent / "h200_boots.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("boot", BOOTS, ids=[f"{one['seat']}-{one['planned']}" for one in BOOTS])
def test_what_a_boot_on_an_h200_held(boot: dict[str, Any]) -> None:
    libraries, live = boot["libraries"], boot["resolved"]
    if boot["seat"] == "h200-mini":
        (rank,) = predict(
            read_pack(source_root() / "recipe/mini/pack"),
            {"block_size": live["block_size"], **boot["requested"]},
            scratch_of(libraries, **H200),
        )
        assert rank.weights_bytes == live["weights_bytes"]
        assert rank.kv_tokens == live["kv_cache_tokens"]
        assert rank.scratch_bytes == live["scratch_bytes"]
        return
    # Its pack is 1.9 GB of random bits: what follows from its configuration alone.
    config = boot["config"]
    routed = (config["hidden_size"], config["moe_intermediate_size"], config["num_experts_per_tok"])
    assert scratch_of(libraries, **H200)(2176, *routed, config["n_routed_experts"]) == live["scratch_bytes"]
    token = kv_bytes_per_token(config, 1, "auto", "bfloat16")
    assert boot["requested"]["kv_cache_memory_bytes"] // token == live["kv_cache_tokens"]


def test_the_witness_holds_as_many_counters() -> None:
    assert device_counts.SLOTS == SLOTS
    assert scratch_of([], **H200)(1, 128, 128, 1, 1) == device_counts.CELLS * SLOTS * 16 + 4


def test_the_memory_window_predicts_scratch_where_it_knows_the_device() -> None:
    """The candidate-only boot of one H200, of which the shared boot's readback is known."""
    boot = next(one for one in BOOTS if one["planned"] == "shared-a")
    for arguments, expected in ((H200, {"scratch_bytes": boot["resolved"]["scratch_bytes"]}), ({}, {})):
        window = SimpleNamespace(arguments=arguments, arm="candidate")
        rank = SimpleNamespace(libraries=dict.fromkeys(boot["libraries"], "0" * 64))
        record = SimpleNamespace(label="real", requested=boot["requested"], ranks=(rank,))
        context = SimpleNamespace(
            window=window,
            variant="lna2",
            boot=SimpleNamespace(record=record),
            manifest=SimpleNamespace(kv_block_tokens=16, graph_bytes=None),
            pack=source_root() / "recipe/mini/pack",
            integer=lambda name, asked=arguments: asked[name],
        )
        (found,) = memory.predicted(context)  # type: ignore[arg-type]  # of a context only what it reads
        assert found == {
            "weights_bytes": boot["resolved"]["weights_bytes"],
            "kv_cache_tokens": boot["resolved"]["kv_cache_tokens"],
            **expected,
        }


def test_lna2s_share_is_what_a_second_stream_once_held_too() -> None:
    """Read back on the card (H200) with lna2 booted, when each stream had scratch of its own: 86,376,964 bytes."""
    shape = (2176, 256, 512, 3, 6)
    whole, without = (scratch_of(names, **H200)(*shape) for names in (("incumbent", "lna2"), ("incumbent",)))
    assert whole + (whole - without) == 86_376_964


def test_FL_31_a_planted_fault_is_predicted_as_the_honest_kernel() -> None:
    shape = (2176, 256, 512, 3, 6)
    honest, faulty = (scratch_of([name], **H200)(*shape) for name in ("lna2", "scratch-per-layer"))
    assert faulty == honest


def test_a_plan_says_what_the_ranks_of_a_gpu_will_hold() -> None:
    """As read back on the card with the candidate loaded, and graphs of both variants."""
    plan, text = draft(source_root() / "orders/h200-lna2.yaml")
    shared = next(one for one in BOOTS if one["planned"] == "shared-a")["resolved"]
    (rank,) = plan["prediction"]
    assert {name: rank[name] for name in ("weights_bytes", "scratch_bytes", "graph_bytes")} == {
        **{name: shared[name] for name in ("weights_bytes", "scratch_bytes")},
        "graph_bytes": 4_194_304,
    }
    assert "4194304 of graphs" in text


def test_a_plan_predicts_a_pack_that_is_made_on_the_host_from_its_geometry() -> None:
    """As one H200 read it back in reports/h200-ds-lna2/20261201-022921-57a216db."""
    plan, text = draft(source_root() / "orders/h200-ds-lna2.yaml")
    (rank,) = plan["prediction"]
    assert {name: rank[name] for name in ("weights_bytes", "scratch_bytes", "graph_bytes", "kv_tokens")} == {
        "weights_bytes": 3_802_849_280,
        "scratch_bytes": 83_132_676,
        "graph_bytes": 48_234_496,
        "kv_tokens": 65_536,
    }
    assert plan["not_predicted"] == ""
    assert "3802849280 bytes of weights" in text


def test_a_plan_says_why_it_predicts_nothing() -> None:
    plan, text = draft(source_root() / "orders/fake-lna2.yaml")
    assert (plan["prediction"], plan["not_predicted"]) == ([], "the pack is not on this machine: toy")
    assert "what ranks will hold is not predicted: the pack is not on this machine: toy" in text


def test_lna2_paired_is_one_source_with_lna2() -> None:
    shape = (2176, 256, 512, 3, 6)
    assert scratch_of(["lna2-paired"], **H200)(*shape) == scratch_of(["lna2"], **H200)(*shape)


def test_lna_holds_operands_and_results_of_each_pair() -> None:
    """``carve_cuda_moe_scratch`` of lna.cu for 32 rows; no device and no count of experts enters it."""
    none, own = (scratch_of(names, **H200)(2176, 256, 512, 3, 6) for names in ([], ["lna"]))
    assert own - none == 32 * 3 * (3 * 256 + 3 * 512) * 4


def test_every_served_candidate_has_a_rule_or_a_reason() -> None:
    candidates = [name for name, one in VARIANTS.items() if one.role in (Role.CANDIDATE, Role.FAULTY)]
    reasons = {name: without_rule([name]) for name in candidates}
    assert [name for name, reason in reasons.items() if reason] == ["dense"]
    assert "for each stream" in reasons["dense"]


def test_a_library_that_no_rule_covers() -> None:
    with pytest.raises(InputError, match="no rule for a library's scratch"):
        scratch_of(["incumbent", "lna9"], **H200)
