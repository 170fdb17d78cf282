"""The witness's code for GPUs as far as it decides anything: a stand-in queues, captures and counts in this memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from carve_kernels.abi import MAX_LAYERS
from carve_kernels.cuda.library import COUNTERS_BYTES
from carve_kernels.desk.gpu import moe

from runner.errors import SeatError
from serve.witness import cuda as witness_cuda
from serve.witness.build import witness_library
from serve.witness.cuda import CudaProcessor, Tally
from serve.witness.device_counts import CELLS, SLOTS, DeviceCounts, NativeCuda
from serve.witness.exllamav3 import ROWS, TUNED, Exllamav3, sorted_routes
from serve.witness.modules import Matrix
from serve.witness.processor import Count
from serve.witness.refused import RefusedError

CPU = torch.device("cpu")


class Paper:
    """CUDA on paper: the streams and captures that a test says, counts made at once."""

    def __init__(self) -> None:
        self.at, self.captured, self.finished = 1, 0, True

    def count(self, banks: torch.Tensor, serving: torch.Tensor, slot: int, rows: int, stream: int) -> None:
        cells = banks[int(serving), slot]
        cells[0] += 1
        cells[1 + min(rows, CELLS - 2)] += 1

    def capture(self, stream: int) -> int:
        return self.captured

    def stream(self) -> int:
        return self.at

    def event(self) -> Any:
        return SimpleNamespace(record=lambda: None, query=lambda: self.finished)


def gemm(x: torch.Tensor, trellis: torch.Tensor, out: torch.Tensor, *rest: Any) -> None:
    out.fill_(float(trellis[0, 0, 0]))


def processor(cuda: Paper, strict: int = 1) -> CudaProcessor:
    """With an incumbent that multiplies nothing."""
    made = CudaProcessor(Path("count.so"), CPU, strict=strict, cuda=cuda)
    made.variants["incumbent"] = Exllamav3(Path("ext.so"), SimpleNamespace(exl3_gemm=gemm))
    return made


def matrix(value: int) -> Matrix:
    trellis = torch.full((8, 8, 32), value, dtype=torch.int16)
    return Matrix(trellis, torch.ones(128, dtype=torch.half), torch.ones(128, dtype=torch.half), "mcg")


def test_a_merged_linear_counts_once_and_lies_side_by_side() -> None:
    made = processor(Paper())
    module = made.linear("layers.0.gate_up", 0, [matrix(1), matrix(2)])
    made.serve(True)
    out, reason = made.run_linear("incumbent", module, torch.ones(3, 128, dtype=torch.bfloat16))
    assert out is not None
    assert (reason, out.dtype) == ("", torch.bfloat16)
    assert out.tolist() == [[1.0] * 128 + [2.0] * 128] * 3
    assert list(made.ran("linear", "incumbent")) == [Count(0, 1, ((3, 1),))]


def test_a_shape_is_tuned_with_few_rows_before_many_come() -> None:
    seen: list[tuple[int, int]] = []

    def note(x: torch.Tensor, trellis: torch.Tensor, out: torch.Tensor, *rest: Any) -> None:
        gemm(x, trellis, out)
        seen.append((x.shape[0], int(trellis.shape[2])))

    incumbent = Exllamav3(Path("ext.so"), SimpleNamespace(exl3_gemm=note))
    narrow = matrix(1)
    wide = Matrix(torch.full((8, 8, 48), 2, dtype=torch.int16), narrow.suh, narrow.svh, "mcg")
    for rows, one in ((1, narrow), (2176, narrow), (2176, narrow), (TUNED + 1, wide), (TUNED, wide)):
        assert incumbent.linear(one, torch.ones(rows, 128, dtype=torch.half)).shape == (rows, 128)
    assert seen == [(1, 32), (16, 32), (2176, 32), (2176, 32), (16, 48), (17, 48), (16, 48)]


def test_warm_up_is_counted_apart() -> None:
    made = processor(Paper())
    module = made.linear("layers.0.q", 0, [matrix(1)])
    for serving, rows in ((False, 8), (True, 1), (False, 8), (True, 70)):
        made.serve(serving)
        made.run_linear("incumbent", module, torch.ones(rows, 128, dtype=torch.half))
    assert list(made.ran("linear", "incumbent")) == [Count(0, 2, ((1, 1), (65, 1)))]
    assert list(made.ran("linear", "incumbent", prewarm=True)) == [Count(0, 2, ((8, 2),))]


def test_a_capture_without_warm_up_is_refused() -> None:
    cuda = Paper()
    made = processor(cuda)
    module = made.linear("layers.0.q", 0, [matrix(1)])

    def run(rows: int) -> None:
        made.run_linear("incumbent", module, torch.ones(rows, 128, dtype=torch.half))

    run(4)
    cuda.captured = 7
    run(4)
    with pytest.raises(RefusedError, match=r"captured without having been run first.*layers\.0\.q, 5 rows"):
        run(5)
    cuda.at = 2
    with pytest.raises(RefusedError, match="captured without having been run first"):
        run(4)


@pytest.mark.parametrize(
    ("eager", "captured", "refused"),
    [
        ("rows-above-limit", "", True),
        ("", "rows-above-limit", False),
        ("rows-above-limit", "rows-above-limit", False),
        ("", "", False),
    ],
)
def test_FL_27_what_runs_first_inside_a_capture_is_refused(eager: str, captured: str, refused: bool) -> None:
    """A decline is no run: nothing was loaded or tuned. Declines inside a capture are counted, and not refused."""
    cuda = Paper()
    made = processor(cuda)
    layer: Any = SimpleNamespace(prefix="layers.1.experts", index=1)

    def run(answer: str) -> None:
        made._counted("routed_experts", "untuned", layer, 4, lambda: (None if answer else torch.empty(0), answer))

    run(eager)
    cuda.captured = 7
    if refused:
        with pytest.raises(RefusedError, match=r"captured without having been run first.*declined rows-above-limit"):
            run(captured)
    else:
        run(captured)


def test_what_a_card_holds_beside_weights_and_scratch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pools of graphs are segments of the allocator that belong to a pool; what it does not know of is outside."""
    segments = [
        {"device": 0, "segment_pool_id": (0, 0), "total_size": 5 << 20},
        {"device": 0, "segment_pool_id": (0, 1), "total_size": 2 << 20},
        {"device": 0, "segment_pool_id": (0, 1), "total_size": 20 << 20},
        {"device": 1, "segment_pool_id": (0, 1), "total_size": 64 << 20},
    ]
    monkeypatch.setattr(torch.cuda, "memory_snapshot", lambda: segments)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (60 << 20, 100 << 20))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 27 << 20)
    made = processor(Paper())
    made.device = torch.device("cuda", 0)
    assert made.memory() == {"graph_bytes": 22 << 20, "outside_bytes": 13 << 20}


@pytest.mark.parametrize(("one_stream", "kept"), [(True, 1), (False, 2)])
def test_scratch_is_the_ranks_and_not_each_streams(
    one_stream: bool, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine runs on one stream and captures on others: a boot on an H200 held 35,651,840 bytes twice."""
    native = SimpleNamespace(scratch_bytes=lambda rows, *shape: 1000 + rows)
    monkeypatch.setattr(moe, "Library", lambda path: native)
    path = Path("lna2.so")
    library = witness_cuda._Routed(path).library if one_stream else moe.MoeLibrary(path)
    layer: Any = SimpleNamespace(
        hidden=256, intermediate=512, experts=6, projections=[SimpleNamespace(suh=torch.empty(0))]
    )
    held = [library.scratch(layer, 3, stream) for stream in (0, 5)]
    assert len({each.data_ptr() for each in held}) == kept
    assert library.scratch_bytes() == kept * 1032
    layer.hidden = 512
    library.scratch(layer, 3, 0)
    assert library.scratch_bytes() == (kept + 1) * 1032


def warmed(cuda: Paper) -> Callable[[int], None]:
    """A call on a stream, after both streams have run it once."""
    made = processor(cuda)
    module = made.linear("layers.0.q", 0, [matrix(1)])

    def run(stream: int) -> None:
        cuda.at = stream
        made.run_linear("incumbent", module, torch.ones(1, 128, dtype=torch.half))

    run(1)
    run(2)
    return run


def test_a_second_stream_in_one_graph_is_refused() -> None:
    cuda = Paper()
    run = warmed(cuda)
    cuda.captured = 3
    run(1)
    with pytest.raises(RefusedError, match="a second stream in one graph"):
        run(2)
    cuda.captured = 4  # another graph may be captured elsewhere
    run(2)


def test_a_second_stream_waits_for_the_first() -> None:
    cuda = Paper()
    run = warmed(cuda)
    cuda.finished = False
    run(2)
    with pytest.raises(RefusedError, match="carve strict 1: a second stream while the first still runs"):
        run(1)
    cuda.finished = True
    run(1)


def test_a_variant_that_is_none_declines_and_the_decline_is_counted() -> None:
    made = processor(Paper())
    made.serve(True)
    module: Any = SimpleNamespace(prefix="layers.1.experts", index=4)
    ids = torch.zeros(2, 1, dtype=torch.int32)
    assert made.run_experts("nobody", module, torch.ones(2, 128), ids, torch.ones(2, 1)) == (None, "not-ready")
    assert list(made.declined("nobody", "not-ready")) == [Count(4, 1, ((2, 1),))]
    assert (made.serves("nobody", "routed_experts"), made.serves("nobody", "linear")) == (True, False)


def test_what_a_library_counted_during_warm_up_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    made, counted = processor(Paper()), {(1, 4): 0}
    monkeypatch.setattr(made, "_tally", lambda variant: Tally(counted if variant == "lna2" else {}))
    made.variants["lna2"] = made.variants["incumbent"]
    for serving, launches in ((True, 5), (False, 2), (True, 30), (False, 1)):
        counted[1, 4] += launches if launches != 5 else 5  # before the switch to the other bank
        made.serve(serving)
    assert list(made.own("lna2")) == [Count(1, 3, ((4, 3),))]


@pytest.mark.parametrize("rows", [1, 5, ROWS, 2 * ROWS + 3])
def test_rows_of_a_call_reach_their_experts_whatever_their_number(rows: int) -> None:
    """The stand-in multiplies each row by its expert's number plus one, from the sorted routes alone."""
    experts, topk, called = 6, 3, []

    def moe(x: torch.Tensor, out: torch.Tensor, counts: torch.Tensor, tokens: torch.Tensor, *rest: Any) -> None:
        weights, *scratch = rest[:5]
        assert x.shape[0] <= scratch[0].shape[1]
        called.append(x.shape[0])
        place = 0
        for expert, count in enumerate(counts.tolist()[:-1]):
            for token, weight in zip(tokens[place : place + count], weights[place : place + count], strict=True):
                out[token] += weight.float() * (expert + 1) * x[token].float()
            place += count

    module = SimpleNamespace(exl3_moe=moe, exl3_moe_max_concurrency=lambda device: 2)
    projections = [SimpleNamespace(bits=2)] * 3
    tables = [[torch.zeros(experts)] * 3] * 3
    layer: Any = SimpleNamespace(
        codebook=1, projections=projections, tables=tables, experts=experts, hidden=8, intermediate=4
    )
    source = torch.Generator().manual_seed(rows)
    x = torch.randn(rows, 8, generator=source).half()
    ids = torch.stack([torch.randperm(experts + 1, generator=source)[:topk] for _ in range(rows)]).int()
    weights = torch.rand(rows, topk, generator=source).half().float()
    out = Exllamav3(Path("ext.so"), module).routed(layer, x, ids, weights, 0.0)
    factor = torch.where(ids < experts, ids + 1, 0)
    expected = (weights * factor).sum(dim=1, keepdim=True) * x.float()
    assert torch.allclose(out, expected, rtol=1e-4, atol=1e-4)
    assert sum(called) == rows
    assert max(called) <= ROWS


def test_an_expert_of_another_rank_adds_nothing() -> None:
    counts, rows, weights = sorted_routes(torch.tensor([[2, -1], [0, 9]]), torch.tensor([[1.0, 2.0], [3.0, 4.0]]), 3)
    assert counts.tolist() == [1, 0, 1, 2]
    assert (rows[:2].tolist(), weights[:2].tolist()) == ([1, 0], [3.0, 1.0])


def test_the_slots_hold_every_layer_of_every_kind() -> None:
    made = DeviceCounts(CPU, Paper())
    for layer in range(MAX_LAYERS):
        made.count(("linear", "incumbent", layer), 1, 0)
    made.serve(True)
    made.count(("linear", "incumbent", 3), 64, 0)
    assert [one.layer for one in made.read(0, "linear", "incumbent")] == list(range(MAX_LAYERS))
    assert list(made.read(1, "linear", "incumbent")) == [Count(3, 1, ((64, 1),))]
    assert 8 * MAX_LAYERS < SLOTS
    assert CELLS == COUNTERS_BYTES // MAX_LAYERS // 8 - 1


def test_the_native_node_is_built_and_says_what_cuda_refuses() -> None:
    with pytest.raises(SeatError, match="CUDA refused the witness"):
        NativeCuda(witness_library(gpu=True), CPU).capture(0)
    with pytest.raises(SeatError, match="not the GPU's witness"):
        NativeCuda(witness_library(), CPU)
