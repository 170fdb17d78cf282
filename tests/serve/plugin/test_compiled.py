"""The operators inside ``torch.compile``: traced whole by their fake implementations, and right when they run."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from carve_kernels.build import build

from serve.plugin import operators
from serve.plugin.together import Together
from serve.witness import witness as witnesses
from serve.witness.build import witness_library
from serve.witness.cpu import CpuProcessor
from serve.witness.modules import Matrix
from serve.witness.witness import Witness

HIDDEN, EXPERTS, TOPK = 256, 3, 2


def matrix(inputs: int, outputs: int, seed: int) -> Matrix:
    rng = np.random.default_rng(seed)
    trellis = rng.integers(-(1 << 15), 1 << 15, (inputs // 16, outputs // 16, 32), dtype=np.int16)
    suh = np.full(inputs, inputs**-0.5, np.float16)
    return Matrix(torch.from_numpy(trellis), torch.from_numpy(suh), torch.ones(outputs, dtype=torch.half), "mcg")


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> Witness:
    """A process's witness with one layer."""
    environment = {"CARVE_LIBRARIES": json.dumps({"incumbent": str(build("incumbent"))})}
    made = Witness(environment, CpuProcessor(witness_library(), threads=1), rank=0, ranks=1)
    made.register_linear("layers.0.gate_up", [matrix(HIDDEN, 128, 1), matrix(HIDDEN, 256, 2)])
    experts = [
        (matrix(HIDDEN, 128, 3 * n), matrix(HIDDEN, 128, 3 * n + 1), matrix(128, HIDDEN, 3 * n + 2))
        for n in range(EXPERTS)
    ]
    made.register_experts("layers.1.experts", experts, topk=TOPK, limit=0.0)
    monkeypatch.setattr(witnesses, "_current", [made])
    return made


def step(x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    routed = operators.routed_experts(torch.relu(x), ids, weights, 0)
    return operators.linear(routed + x, 0, 384) * 2


def test_a_step_is_one_graph_and_computes_the_same(loaded: Witness) -> None:
    before = launched(loaded)
    compiled = torch.compile(step, backend="eager", fullgraph=True, dynamic=True)
    for rows in (1, 4, 9):
        x = torch.linspace(-1, 1, rows * HIDDEN).reshape(rows, HIDDEN).to(torch.bfloat16)
        ids = torch.arange(rows * TOPK, dtype=torch.int32).reshape(rows, TOPK) % EXPERTS
        weights = torch.full((rows, TOPK), 0.5)
        assert torch.equal(compiled(x, ids, weights), step(x, ids, weights))
    assert {op: count - before.get(op, 0) for op, count in launched(loaded).items()} == {
        "routed_experts": 6,
        "linear": 6,
    }


def launched(made: Witness) -> dict[str, int]:
    return {row.op: row.launches for row in made.counters().witness}


def test_a_trace_runs_no_kernel(loaded: Witness) -> None:
    before = loaded.counters().witness  # a native library counts for its whole process
    with torch._subclasses.FakeTensorMode():
        x = torch.empty(5, HIDDEN, dtype=torch.bfloat16)
        out = torch.ops.carve_serve.linear(x, 0, 384)
        assert (tuple(out.shape), out.dtype) == ((5, 384), torch.bfloat16)
        routed = torch.ops.carve_serve.routed_experts(
            x, torch.zeros(5, TOPK, dtype=torch.int32), torch.zeros(5, TOPK), 0
        )
        assert routed.shape == x.shape
    assert loaded.counters().witness == before


def test_two_linears_together_are_one_launch_in_a_compiled_step(loaded: Witness) -> None:
    """Also where the second is left out of one step: nothing of it reaches the next."""
    members = [loaded.register_linear(name, [matrix(HIDDEN, 128, seed)]) for name, seed in (("a", 31), ("b", 32))]
    pair = Together(loaded.register_fan("fan", members), *members)

    def both(x: torch.Tensor, *, second: bool) -> tuple[torch.Tensor, torch.Tensor]:
        own = pair.apply(members[0], x)
        return own, pair.apply(members[1], x) if second else own

    compiled = torch.compile(both, backend="eager", fullgraph=True, dynamic=True)
    before = launched_by_layer(loaded)
    for rows, second in ((2, True), (3, False), (5, True)):
        x = torch.linspace(-1, 1, rows * HIDDEN).reshape(rows, HIDDEN).to(torch.bfloat16)
        own, other = compiled(x, second=second)
        expected = [operators.linear(x, member.index, 128) for member in members]
        assert torch.equal(own, expected[0])
        assert torch.equal(other, expected[1 if second else 0])
    moved = {name: count - before.get(name, 0) for name, count in launched_by_layer(loaded).items()}
    assert (moved["fan"], moved["a"], moved["b"]) == (3, 3, 3)


def launched_by_layer(witness: Witness) -> dict[str, int]:
    return {row.layer: row.launches for row in witness.counters().witness if row.op == "linear"}
