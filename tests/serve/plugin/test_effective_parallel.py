"""Over how many ranks a linear is really cut, asked of vLLM's own classes in a group that is only claimed."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.model_executor.layers import linear

from serve.plugin.headers import Header, named_by, packed_parts
from serve.plugin.linear import Exl3LinearMethod, effective_parallel
from serve.plugin.module_map import claimed
from serve.plugin.shards import Cut

pytestmark = pytest.mark.filterwarnings("ignore")  # vLLM's and torch's own, while a layer is made


def made(kind: type[Any], *sizes: Any, **choices: Any) -> Any:
    with claimed(3, 8), set_current_vllm_config(VllmConfig()), torch.device("meta"):
        return kind(*sizes, bias=False, params_dtype=torch.float32, **choices)


@pytest.mark.parametrize(
    ("kind", "sizes", "choices", "cut"),
    [
        (linear.ColumnParallelLinear, (256, 4096), {}, Cut(3, 8, "out")),
        (linear.RowParallelLinear, (4096, 256), {}, Cut(3, 8, "in")),
        (linear.MergedColumnParallelLinear, (256, [1024, 2048]), {}, Cut(3, 8, "out")),
        (linear.MergedColumnParallelLinear, (256, [1024, 512]), {"disable_tp": True}, Cut(0, 1, "out")),
        (linear.ReplicatedLinear, (256, 8192), {}, Cut(0, 1, "out")),
        (linear.RowParallelLinear, (4096, 256), {"disable_tp": True}, Cut(0, 1, "in")),
    ],
)
def test_a_matrix_is_cut_as_its_module_is(kind: type[Any], sizes: Any, choices: Any, cut: Cut) -> None:
    layer = made(kind, *sizes, **choices)
    assert Exl3LinearMethod("layers.0.x", ["layers.0.x"])._cut(layer, 0) == cut
    assert effective_parallel(layer) == (cut.rank, cut.ranks)


def test_key_value_heads_fewer_than_ranks_are_shared() -> None:
    layer = made(linear.QKVParallelLinear, 1024, 128, 16, 2)
    method = Exl3LinearMethod("layers.0.qkv", ["q", "k", "v"])
    assert [method._cut(layer, place) for place in range(3)] == [Cut(3, 8), Cut(0, 2), Cut(0, 2)]


def test_a_pack_is_read_by_the_names_of_the_served_class() -> None:
    header = Header(6, 4096, 1024, "mcg")

    def rename(names: list[str]) -> list[str]:
        return [f"language_model.model.{name}" for name in names if not name.startswith("mtp.")]

    found = named_by(rename, {"layers.3.attn.wq_a": header, "mtp.0.attn.wq_a": header})
    assert found == {"language_model.model.layers.3.attn.wq_a": header}


@pytest.mark.parametrize(
    ("prefix", "parts"),
    [
        ("model.layers.3.attn.fused_wqa_wkv", ["wq_a", "wkv"]),
        ("model.layers.3.attn.compressor.fused_wkv_wgate", ["wkv", "wgate"]),
        ("model.layers.3.attn.indexer.compressor.fused_wkv_wgate", ["wkv", "wgate"]),
        ("model.layers.3.ffn.shared_experts.gate_up_proj", ["w1", "w3"]),
        ("model.layers.3.mlp.gate_up_proj", ["gate_proj", "up_proj"]),
        ("model.layers.3.attn.wq_b", []),
    ],
)
def test_parts_are_those_the_class_declares_or_deepseeks(prefix: str, parts: list[str]) -> None:
    declared = {"gate_up_proj": ["gate_proj", "up_proj"]} if ".mlp." in prefix else {}
    assert packed_parts(declared, prefix) == parts
