"""DeepSeek-V4's modules as vLLM's own class names and cuts them: built on the meta device as one of eight ranks."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import pytest
from vllm.models.deepseek_v4 import DeepseekV4ForCausalLM, DeepSeekV4MTP

from runner.errors import InputError
from serve.plugin import module_map
from serve.plugin.module_map import Served, build, configuration, looked_at, served

CONFIGURATION = {
    "architectures": ["DeepseekV4ForCausalLM"],
    "model_type": "deepseek_v4",
    "compress_ratios": [0, 4, 128],
    "compress_rope_theta": 160000.0,
    "expert_dtype": "fp8",
    "hc_eps": 1e-6,
    "hc_mult": 4,
    "hc_sinkhorn_iters": 20,
    "head_dim": 512,
    "hidden_act": "silu",
    "hidden_size": 1024,
    "index_head_dim": 128,
    "index_n_heads": 16,
    "index_topk": 512,
    "max_position_embeddings": 4096,
    "moe_intermediate_size": 1024,
    "n_routed_experts": 16,
    "n_shared_experts": 1,
    "norm_topk_prob": True,
    "num_attention_heads": 16,
    "num_experts_per_tok": 4,
    "num_hash_layers": 1,
    "num_hidden_layers": 3,
    "num_key_value_heads": 1,
    "num_nextn_predict_layers": 3,
    "o_groups": 8,
    "o_lora_rank": 128,
    "q_lora_rank": 256,
    "qk_rope_head_dim": 64,
    "rms_norm_eps": 1e-6,
    "rope_parameters": {
        "rope_type": "yarn",
        "rope_theta": 10000.0,
        "factor": 16,
        "original_max_position_embeddings": 256,
        "beta_fast": 32,
        "beta_slow": 1,
    },
    "routed_scaling_factor": 1.5,
    "scoring_func": "sqrtsoftplus",
    "sliding_window": 128,
    "swiglu_limit": 10.0,
    "tie_word_embeddings": False,
    "topk_method": "noaux_tc",
    "torch_dtype": "bfloat16",
    "vocab_size": 2048,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("deepseek-v4")
    (made / "config.json").write_text(json.dumps(CONFIGURATION))
    return made


def mapped(kind: type, folder: Path) -> dict[str, Served]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # transformers and torch about themselves
        model, asked = build(kind, configuration(folder), 3, 8, draft=kind is DeepSeekV4MTP)
    return {row.prefix: row for row in served(model, asked)}


@pytest.fixture(scope="module")
def target(folder: Path) -> dict[str, Served]:
    return mapped(DeepseekV4ForCausalLM, folder)


@pytest.mark.parametrize(
    ("place", "ranks", "widths", "parts"),
    [
        ("attn.fused_wqa_wkv", 1, (1024, 768), ("wq_a", "wkv")),
        ("attn.wq_b", 8, (256, 1024), ()),
        ("attn.wo_b", 8, (128, 1024), ()),
        ("attn.indexer.wq_b", 1, (256, 2048), ()),
        ("ffn.shared_experts.gate_up_proj", 8, (1024, 256), ("w1", "w3")),
        ("ffn.shared_experts.down_proj", 8, (128, 1024), ()),
        ("ffn.experts", 8, (1024, 128), ()),
    ],
)
def test_what_can_be_exl3_and_over_how_many_ranks_it_is_cut(
    target: dict[str, Served], place: str, ranks: int, widths: tuple[int, int], parts: tuple[str, ...]
) -> None:
    row = target[f"model.layers.1.{place}"]
    assert (row.ranks, (row.inputs, row.outputs), row.parts, row.obstacle) == (ranks, widths, parts, "")


def test_what_stands_in_the_way_is_said(target: dict[str, Served]) -> None:
    hindered = {name.partition("layers.1.")[2]: row.obstacle for name, row in target.items() if row.obstacle}
    assert "batched product" in hindered["attn.wo_a"]
    for name in ("attn.compressor.fused_wkv_wgate", "attn.indexer.compressor.fused_wkv_wgate"):
        assert hindered[name] == "built without a quantisation configuration"
        assert target[f"model.layers.1.{name}"].ranks == 1
    assert "model.layers.0.attn.compressor.fused_wkv_wgate" not in target  # its compression ratio is 0


def test_the_draft_layers_follow_the_last_layer(folder: Path) -> None:
    rows = mapped(DeepSeekV4MTP, folder)
    layers = sorted({int(name.split("layers.")[1].split(".")[0]) for name in rows if "layers." in name})
    assert layers == [3, 4, 5]
    assert any(name.endswith("ffn.experts") for name in rows)


def test_the_map_is_one_line_a_module(folder: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        lines = looked_at(folder, 3, 8, draft=False).splitlines()
    assert any(line.startswith("model.layers.1.ffn.experts ") and "/8 " in line for line in lines)


@pytest.mark.parametrize(
    ("written", "rank", "words"),
    [
        (None, 0, "no configuration of a model"),
        ("{", 0, "no configuration of a model"),
        ("[]", 0, "another class"),
        (json.dumps({"architectures": ["Glm4MoeForCausalLM"]}), 0, "another class"),
        (json.dumps({name: CONFIGURATION[name] for name in ("architectures", "model_type")}), 0, "does not build it"),
        (json.dumps(CONFIGURATION), 8, "no such rank"),
        (json.dumps(CONFIGURATION), -1, "no such rank"),
    ],
)
def test_what_is_not_deepseek_v4_is_said(tmp_path: Path, written: str | None, rank: int, words: str) -> None:
    if written is not None:
        (tmp_path / "config.json").write_text(written)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(InputError, match=words):
            looked_at(tmp_path, rank, 8, draft=False)


def test_the_command_says_it_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["module_map", str(tmp_path / "nowhere")])
    with pytest.raises(SystemExit) as ended:
        module_map.main()
    assert ended.value.code == InputError.exit_code
    assert "no configuration of a model" in capsys.readouterr().err
