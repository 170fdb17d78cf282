"""The torch operators compute what the library computes and can be traced."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from carve_kernels import ops
from carve_kernels.build import build
from carve_kernels.desk import layers
from carve_kernels.desk.layers import Shape
from carve_kernels.desk.reference import Reference
from carve_kernels.exl3.codebook import Codebook
from carve_kernels.exl3.linear import dequantise
from carve_kernels.library import Library, Table
from torch._subclasses.fake_tensor import FakeTensorMode

from runner.errors import InputError

SHAPE = Shape(hidden=256, intermediate=128, experts=4, topk=2)


@pytest.fixture
def experts() -> list[layers.Expert]:
    return layers.experts(np.random.default_rng(3), SHAPE, 2, Codebook.MCG)


def _call(rows: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    draw = np.random.default_rng(rows)
    ids = layers.routes(draw, "unique", SHAPE, rows)
    arrays = (layers.inputs(draw, "gaussian", SHAPE, rows), ids, draw.random(ids.shape, np.float32))
    x, chosen, weights = (torch.from_numpy(array) for array in arrays)
    return x, chosen, weights


def test_routed_experts(experts: list[layers.Expert]) -> None:
    handle = ops.add_layer(Library(build("lna2")), Table(experts))
    x, ids, weights = _call(3)
    out = torch.ops.carve.routed_experts(x, ids, weights, handle=handle, layer=0, limit=10.0)
    expected = Reference(experts).forward(x.numpy(), ids.numpy(), weights.numpy(), 10.0)
    assert np.linalg.norm(out.numpy() - expected) < 1e-3 * np.linalg.norm(expected)
    torch.library.opcheck(
        ops.routed_experts,
        (x, ids, weights),
        {"handle": handle, "layer": 0, "limit": 10.0},
        test_utils="test_faketensor",
    )


def test_linear(experts: list[layers.Expert]) -> None:
    part = experts[0][0]
    handle = ops.add_linear(Library(build("incumbent")), part)
    x = _call(5)[0]
    assert torch.allclose(ops.linear(x, handle), x @ torch.from_numpy(dequantise(part)), rtol=1e-4, atol=1e-4)
    with FakeTensorMode() as mode:
        assert ops.linear(mode.from_tensor(x), handle).shape == (5, SHAPE.intermediate)


def test_a_decline_is_an_error(experts: list[layers.Expert]) -> None:
    handle = ops.add_layer(Library(build("lna2")), Table(experts))
    with pytest.raises(InputError, match="rows-above-limit"):
        ops.routed_experts(*_call(33), handle=handle, layer=0, limit=10.0)
