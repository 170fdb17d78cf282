"""The boot prediction by its rules: what is cut, what is whole, what nobody has a rule for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from recipe.mini.random_pack import generate
from recipe.pack import Pack, read_pack
from runner.errors import InputError
from runner.paths import source_root
from runner.steps.seats import load_manifest
from serve.prediction import Device, kv_budget, kv_bytes_per_token, predict

GIB = 1 << 30
ARGUMENTS = load_manifest("cpu-mini").arguments


@pytest.fixture(scope="module")
def pack() -> Pack:
    return read_pack(source_root() / "recipe/mini/pack")


def test_the_kv_tokens_of_the_committed_reports(pack: Pack) -> None:
    """Fourteen signed reports of ``cpu-mini`` read 32,768 tokens back, the one of ``cpu-mini-tp2`` 65,536."""
    (alone,) = predict(pack, ARGUMENTS)
    assert (alone.kv_bytes_per_token, alone.kv_tokens, alone.scratch_bytes) == (4096, 32768, 0)
    both = predict(pack, load_manifest("cpu-mini-tp2").arguments)
    assert [(rank.rank, rank.kv_tokens) for rank in both] == [(0, 65536), (1, 65536)]


def test_two_ranks_hold_what_is_whole_twice(pack: Pack) -> None:
    (alone,) = predict(pack, ARGUMENTS)
    shares = [rank.weights_bytes for rank in predict(pack, {**ARGUMENTS, "tensor_parallel_size": 2})]
    assert shares[0] == shares[1]
    whole = sum(shares) - alone.weights_bytes
    assert 0 < whole < 0.02 * alone.weights_bytes, "norms, routers and the shared scales of each matrix"


def test_scratch_is_the_kernels_own_formula(pack: Pack) -> None:
    asked = []

    def formula(*shape: int) -> int:
        asked.append(shape)
        return 7

    ranks = predict(pack, {**ARGUMENTS, "tensor_parallel_size": 2}, formula)
    assert asked == [(2176, 256, 256, 3, 6)]
    assert [rank.scratch_bytes for rank in ranks] == [7, 7]


def test_kv_gets_what_a_device_has_left(pack: Pack) -> None:
    device = Device(total_bytes=1 << 30, activation_bytes=100 << 20, graph_bytes=40 << 20, other_bytes=10 << 20)
    arguments = {**ARGUMENTS, "kv_cache_memory_bytes": None, "gpu_memory_utilization": "0.5"}
    (rank,) = predict(pack, arguments, lambda *_: 7 << 20, device)
    left = (512 - 100 - 40 - 10 - 7 << 20) - rank.weights_bytes
    assert rank.kv_tokens == left // (4096 * 128) * 128
    assert rank.graph_bytes == 40 << 20
    (given,) = predict(pack, ARGUMENTS, None, device)
    assert given.kv_tokens == 32768, "the arguments name the pool"


def test_few_kv_heads_are_shared(pack: Pack) -> None:
    config = {"num_hidden_layers": 4, "num_key_value_heads": 2, "head_dim": 64}
    assert [kv_bytes_per_token(config, ranks, "auto", "float32") for ranks in (1, 2, 4)] == [4096, 2048, 2048]
    assert kv_bytes_per_token(config, 1, "fp8", "float32") == 1024


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"dtype": "float8"}, "no such element type"),
        ({"kv_cache_memory_bytes": None}, "the prediction needs"),
        ({"tensor_parallel_size": "2"}, "the prediction needs"),
    ],
)
def test_what_no_rule_covers(pack: Pack, arguments: dict[str, int | str | None], words: str) -> None:
    with pytest.raises(InputError, match=words):
        predict(pack, {**ARGUMENTS, **arguments})


def test_attention_that_keeps_something_else(tmp_path: Path) -> None:
    made = generate(tmp_path / "pack", experts=2, topk=1)
    config = json.loads((made / "config.json").read_bytes())
    (made / "config.json").write_text(json.dumps(config | {"kv_lora_rank": 512}))
    with pytest.raises(InputError, match="no rule for this model's KV cache"):
        predict(read_pack(made), ARGUMENTS)


def test_the_campaigns_fit_that_failed() -> None:
    """FL-33: permanent buffers for every row count left 0.20 GiB; a page more and nothing is left."""
    held = {"weights": 12 * GIB, "activation": 730 << 20, "graphs": 40 << 20}
    left = kv_budget(int(15.48 * GIB), "0.97", held)
    assert left == int(int(15.48 * GIB) * 0.97) - sum(held.values())
    with pytest.raises(InputError, match="nothing is left for KV") as error:
        kv_budget(int(15.48 * GIB), "0.97", held | {"fused buffers": 3 * GIB})
    assert "fused buffers" in error.value.found
