"""torch operators over the dispatch, so that the same calls also work under ``torch.compile``.

In eager mode the Python functions are called directly: a custom operator costs tens of microseconds a call, which on a
small model is not small against the kernels it wraps.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from serve.plugin import dispatch
from serve.witness.processor import Linear


@torch.library.custom_op("carve_serve::routed_experts", mutates_args=())
def _routed_experts(x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, layer: int) -> torch.Tensor:
    return dispatch.routed_experts(x, ids, weights, layer)


@_routed_experts.register_fake
def _(x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, layer: int) -> torch.Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("carve_serve::linear", mutates_args=())
def _linear(x: torch.Tensor, layer: int, width: int) -> torch.Tensor:
    return dispatch.linear(x, layer)


@_linear.register_fake
def _(x: torch.Tensor, layer: int, width: int) -> torch.Tensor:
    return x.new_empty((x.shape[0], width))


def routed_experts(x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, layer: int) -> torch.Tensor:
    """``x`` [rows, hidden], ``ids`` int32 and ``weights`` float32 [rows, topk] to a fresh [rows, hidden]."""
    if torch.compiler.is_compiling():
        return torch.ops.carve_serve.routed_experts(x, ids, weights, layer)
    return dispatch.routed_experts(x, ids, weights, layer)


def fan(x: torch.Tensor, module: Linear, members: Sequence[Linear]) -> tuple[torch.Tensor, ...]:
    """``x`` [rows, in] through a fan over the matrices of ``members``, in their order: one [rows, out] for each member.

    A member of several matrices (queries and keys) gets their outputs side by side, as from itself.
    """
    widths = [sum(member.widths) for member in members]
    found: tuple[torch.Tensor, ...] = linear(x, module.index, sum(widths)).split(widths, dim=-1)
    return found


def linear(x: torch.Tensor, layer: int, width: int) -> torch.Tensor:
    """``x`` [rows, in] to a fresh [rows, ``width``]."""
    if torch.compiler.is_compiling():
        return torch.ops.carve_serve.linear(x, layer, width)
    return dispatch.linear(x, layer)
