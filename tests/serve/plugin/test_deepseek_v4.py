"""DeepSeek-V4's attention over EXL3 matrices: ``wo_a`` by groups on each of two ranks, and one fan for its inputs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from carve_kernels.build import build
from carve_kernels.exl3.codebook import Codebook
from carve_kernels.exl3.linear import Linear, dequantise
from vllm.model_executor.layers.linear import ColumnParallelLinear, ReplicatedLinear, RowParallelLinear
from vllm.models.deepseek_v4 import attention as theirs
from vllm.models.deepseek_v4.nvidia.flashmla import DeepseekV4FlashMLAAttention

from serve.plugin import deepseek_v4
from serve.plugin.linear import Exl3LinearMethod
from serve.witness import witness as witnesses
from serve.witness.build import witness_library
from serve.witness.cpu import CpuProcessor
from serve.witness.witness import Witness

pytestmark = pytest.mark.engine

HEADS, SIZE, ROPE, GROUPS, LOW, HIDDEN = 8, 64, 32, 4, 128, 256
ROWS, RANKS = 5, 2
Tensors = dict[str, torch.Tensor]


def coded(inputs: int, outputs: int, seed: int) -> Tensors:
    rng = np.random.default_rng(seed)
    trellis = rng.integers(-(1 << 15), 1 << 15, (inputs // 16, outputs // 16, 32), dtype=np.int16)
    scale = np.full(inputs, inputs**-0.5, np.float16)
    signs = rng.choice(np.array([-1, 1], np.float16), outputs)
    return {name: torch.from_numpy(one) for name, one in (("trellis", trellis), ("suh", scale), ("svh", signs))}


def plain(tensors: Tensors) -> torch.Tensor:
    """The matrix ``[in, out]``."""
    trellis, suh, svh = (tensors[name].numpy() for name in ("trellis", "suh", "svh"))
    return torch.from_numpy(dequantise(Linear(trellis.view(np.uint16), suh, svh, Codebook.MCG)))


@pytest.fixture
def rank(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """This process as one of two ranks, with a witness of its own."""
    number: int = request.param
    environment = {"CARVE_LIBRARIES": json.dumps({"incumbent": str(build("incumbent"))})}
    made = Witness(environment, CpuProcessor(witness_library(), threads=1), rank=number, ranks=RANKS)
    monkeypatch.setattr(witnesses, "_current", [made])
    return number


def loaded(
    kind: type[torch.nn.Module], prefix: str, tensors: Tensors, number: int, *more: Tensors, **facts: Any
) -> Any:
    """A linear of two ranks as vLLM leaves it, its method's loaders fed with the whole tensors of a pack.

    ``more``: matrices that are packed beside the first.
    """
    matrices = [tensors, *more]
    layer: Any = object.__new__(kind)
    torch.nn.Module.__init__(layer)
    vars(layer).update({"tp_rank": number, "tp_size": RANKS} | facts)
    layer.quant_method = Exl3LinearMethod(prefix, [f"{prefix}.{place}" for place in range(len(matrices))])
    inputs, outputs = len(tensors["suh"]), [len(one["svh"]) for one in matrices]
    layer.quant_method.create_weights(layer, inputs, outputs, inputs, sum(outputs), torch.bfloat16)
    for place, one in enumerate(matrices):
        for name, tensor in (one | {"mcg": torch.tensor(1)}).items():
            parameter = getattr(layer, name)
            parameter.weight_loader(parameter, tensor, place)
    layer.quant_method.process_weights_after_loading(layer)
    layer.forward = lambda x: layer.quant_method.apply(layer, x)
    return layer


def attention(number: int, wo_a: Tensors, wo_b: Tensors, angles: torch.Tensor) -> Any:
    """What the class keeps on one rank, as far as its output projection reads it."""
    return SimpleNamespace(
        rotary_emb=SimpleNamespace(cos_sin_cache=torch.cat((angles.cos(), angles.sin()), dim=-1)),
        rope_head_dim=ROPE,
        n_local_groups=GROUPS // RANKS,
        wo_a=loaded(ColumnParallelLinear, "attn.wo_a", wo_a, number, is_bmm=True, bmm_batch_size=GROUPS // RANKS),
        wo_b=loaded(RowParallelLinear, "attn.wo_b", wo_b, number),
    )


def whole(o: torch.Tensor, turns: torch.Tensor, wo_a: torch.Tensor, wo_b: torch.Tensor) -> torch.Tensor:
    """Plain arithmetic over all heads and groups, with complex numbers for the turning."""
    pairs = torch.view_as_complex(o[..., -ROPE:].reshape(ROWS, HEADS, ROPE // 2, 2))
    turned = torch.view_as_real(pairs * torch.exp(-1j * turns)[:, None]).flatten(-2)
    grouped = torch.cat((o[..., :-ROPE], turned), dim=-1).reshape(ROWS, GROUPS, -1)
    low = torch.einsum("rgi,igo->rgo", grouped, wo_a.unflatten(1, (GROUPS, LOW)))
    return low.flatten(1) @ wo_b


PARTS: dict[int, torch.Tensor] = {}


@pytest.fixture(scope="module")
def material() -> Iterator[dict[str, Any]]:
    torch.manual_seed(3)
    yield {
        "wo_a": coded(HEADS * SIZE // GROUPS, GROUPS * LOW, 1),
        "wo_b": coded(GROUPS * LOW, HIDDEN, 2),
        "angles": torch.randn(20, ROPE // 2),
        "positions": torch.tensor([3, 0, 19, 7, 7]),
        "o": torch.randn(ROWS, HEADS, SIZE),
    }
    PARTS.clear()


@pytest.mark.parametrize("rank", range(RANKS), indirect=True)
def test_two_ranks_add_up_to_the_whole_output_projection(rank: int, material: dict[str, Any]) -> None:
    """The second rank's part closes the sum that an all-reduce would make."""
    own = attention(rank, material["wo_a"], material["wo_b"], material["angles"])
    mine = material["o"].chunk(RANKS, dim=1)[rank]
    PARTS[rank] = deepseek_v4.output_projection(own, mine, material["positions"])
    counted = {row.layer: row.launches for row in witnesses.current().counters().witness if row.op == "linear"}
    assert [name for name in counted if name.startswith("attn.")] == ["attn.wo_a.0", "attn.wo_a.1", "attn.wo_b"]
    if len(PARTS) == RANKS:
        turns = material["angles"][material["positions"]]
        expected = whole(material["o"], turns, plain(material["wo_a"]), plain(material["wo_b"]))
        error = (sum(PARTS.values()) - expected).norm() / expected.norm()
        assert error < 1e-3
        for part in PARTS.values():
            assert (part - expected).norm() / expected.norm() > 0.3, "one rank alone is not the whole"


@pytest.mark.parametrize("rank", [0], indirect=True)
def test_a_group_that_is_no_exl3_matrix_is_refused(rank: int) -> None:
    with pytest.raises(ValueError, match=r"attn\.wo_a: 128 outputs in 3 groups"):
        loaded(ColumnParallelLinear, "attn.wo_a", coded(256, 256, 5), rank, is_bmm=True, bmm_batch_size=3)


@pytest.mark.parametrize("rank", [1], indirect=True)
def test_what_reads_the_hidden_state_is_one_launch(rank: int) -> None:
    """Queries and keys are two matrices of one module, as the class packs them."""
    query, key, scoring = coded(HIDDEN, 128, 7), coded(HIDDEN, 256, 9), coded(HIDDEN, 128, 8)
    projection = loaded(ReplicatedLinear, "attn.fused_wqa_wkv", query, rank, key)
    compressor = loaded(ReplicatedLinear, "attn.compressor.fused_wkv_wgate", scoring, rank)
    weight = torch.randn(64, HIDDEN, dtype=torch.bfloat16)
    dense = SimpleNamespace(weight=weight)
    own = SimpleNamespace(
        prefix="attn",
        fused_wqa_wkv=projection,
        compressor=SimpleNamespace(fused_wkv_wgate=compressor),
        indexer=SimpleNamespace(
            weights_proj=lambda x: (x[:, :4], None), compressor=SimpleNamespace(fused_wkv_wgate=dense)
        ),
    )
    x = torch.randn(3, HIDDEN, dtype=torch.bfloat16)
    keys, scores, index_scores, weights = deepseek_v4.input_projections(own, x)
    assert keys is not None and scores is not None and index_scores is not None and weights is not None
    assert torch.equal(weights, x[:, :4])
    assert (scores.dtype, index_scores.dtype) == (torch.float32, torch.float32)
    assert torch.allclose(index_scores, x.float() @ weight.float().T)
    for found, matrix in ((keys, torch.cat((plain(query), plain(key)), dim=1)), (scores, plain(scoring))):
        expected = x.float() @ matrix
        assert (found.float() - expected).norm() / expected.norm() < 5e-3
    before = launches()  # a native library counts for its whole process
    again = deepseek_v4.input_projections(own, x)
    assert again[0] is not None and torch.equal(again[0], keys)
    moved = {name: count - before[name] for name, count in launches().items() if count != before[name]}
    assert moved == {"attn.fan": 1}, "the fan is counted instead of its members"


def queries(rank: int) -> tuple[Any, Tensors, Tensors]:
    """An attention whose queries and indexer's queries are EXL3, and these two matrices."""
    own, index = coded(128, 512, 21), coded(128, 256, 22)
    indexer = SimpleNamespace(wq_b=loaded(ReplicatedLinear, "attn.indexer.wq_b", index, rank))
    query = loaded(ColumnParallelLinear, "attn.wq_b", own, rank)
    return SimpleNamespace(prefix="attn", wq_b=query, indexer=indexer, aux_stream_list=[1, 2, 3]), own, index


@pytest.mark.parametrize("rank", range(RANKS), indirect=True)
def test_queries_and_the_indexers_queries_are_one_launch_on_one_stream(rank: int) -> None:
    attention, own, index = queries(rank)
    deepseek_v4.share_queries(attention)
    deepseek_v4.share_queries(attention)
    assert attention.aux_stream_list is None
    x = torch.randn(3, 128, dtype=torch.bfloat16)
    before = launches()
    found, indexed = attention.wq_b.forward(x), attention.indexer.wq_b.forward(x)
    moved = {name: count - before.get(name, 0) for name, count in launches().items() if count != before.get(name, 0)}
    assert moved == {"attn.query_fan": 1}
    for out, matrix in ((found, plain(own).chunk(RANKS, dim=1)[rank]), (indexed, plain(index))):
        expected = x.float() @ matrix
        assert (out.float() - expected).norm() / expected.norm() < 5e-3


@pytest.mark.parametrize("rank", [0], indirect=True)
def test_a_call_that_is_left_out_or_brings_another_input_is_answered_for_itself(rank: int) -> None:
    """While the context is short the class asks the indexer for nothing; its part must not reach a later step."""
    attention, _, index = queries(rank)
    deepseek_v4.share_queries(attention)
    first, second = (torch.randn(2, 128, dtype=torch.bfloat16) for _ in range(2))
    attention.wq_b.forward(first)
    for x in (second, second, first):
        found, expected = attention.indexer.wq_b.forward(x), x.float() @ plain(index)
        assert (found.float() - expected).norm() / expected.norm() < 5e-3
    attention.wq_b.forward(first)
    attention.wq_b.forward(second)
    found, expected = attention.indexer.wq_b.forward(second), second.float() @ plain(index)
    assert (found.float() - expected).norm() / expected.norm() < 5e-3


@pytest.mark.parametrize("rank", [0], indirect=True)
def test_an_attention_whose_indexer_is_not_exl3_keeps_its_streams(rank: int) -> None:
    attention, _, _ = queries(rank)
    attention.indexer.wq_b = SimpleNamespace()
    deepseek_v4.share_queries(attention)
    assert attention.aux_stream_list == [1, 2, 3]
    assert attention.wq_b.quant_method.together is None


def launches() -> dict[str, int]:
    return {row.layer: row.launches for row in witnesses.current().counters().witness if row.op == "linear"}


@pytest.mark.parametrize("rank", [0], indirect=True)
def test_a_fan_of_other_inputs_is_refused(rank: int) -> None:
    made = witnesses.current()
    narrow, wide = (
        loaded(ReplicatedLinear, f"m{inputs}", coded(inputs, 128, inputs), rank).quant_method.module
        for inputs in (128, 256)
    )
    with pytest.raises(ValueError, match="m128, m256 read rows of other widths"):
        made.register_fan("fan", [narrow, wide])


def test_other_packs_keep_the_classes_own_arithmetic() -> None:
    deepseek_v4.adapt()
    deepseek_v4.adapt()
    for kind, name in (
        (DeepseekV4FlashMLAAttention, "_o_proj"),
        (theirs.DeepseekV4Attention, "_run_parallel_input_projections"),
    ):
        ours = getattr(kind, name)
        assert ours.carve
        assert not hasattr(ours.__wrapped__, "carve"), "stepped around once, however often it is asked for"
    dense = SimpleNamespace(wo_a=SimpleNamespace(quant_method=None))
    with pytest.raises(AttributeError, match="rotary_emb"):
        DeepseekV4FlashMLAAttention._o_proj(dense, torch.empty(0), torch.empty(0))
