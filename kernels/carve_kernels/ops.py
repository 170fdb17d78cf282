"""The kernels as torch custom operators, with fake implementations so that tracing and compiling see through them.

For the desk and for tests: an engine calls variants through its own counting dispatch. Only this module imports torch.
"""

from __future__ import annotations

import torch

from carve_kernels import parallel
from carve_kernels.library import Library, Table, Tensors
from runner.errors import InputError

_LAYERS: list[tuple[Library, Table]] = []
_LINEARS: list[tuple[Library, Tensors]] = []


def add_layer(library: Library, table: Table) -> int:
    """Makes a layer known; the handle goes into :data:`routed_experts`."""
    _LAYERS.append((library, table))
    return len(_LAYERS) - 1


def add_linear(library: Library, part: Tensors) -> int:
    """Makes a matrix known; the handle goes into :data:`linear`."""
    _LINEARS.append((library, part))
    return len(_LINEARS) - 1


def _routed_experts(
    x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, *, handle: int, layer: int, limit: float
) -> torch.Tensor:
    library, table = _LAYERS[handle]
    out = torch.empty(x.shape, dtype=torch.float32)
    arrays = (x.contiguous().numpy(), ids.contiguous().numpy(), weights.contiguous().numpy())
    declined = library.forward(
        *arrays, table, out=out.numpy(), parallel=parallel.host(torch.get_num_threads()), limit=limit, layer=layer
    )
    if declined:
        raise InputError("variant declined", where=str(library.path), found=declined)
    return out


def _linear(x: torch.Tensor, handle: int) -> torch.Tensor:
    library, part = _LINEARS[handle]
    out = torch.empty((x.shape[0], part.svh.shape[0]), dtype=torch.float32)
    pool = parallel.host(torch.get_num_threads())
    declined = library.linear(x.contiguous().numpy(), part, out=out.numpy(), parallel=pool)
    if declined:
        raise InputError("linear declined", where=str(library.path), found=declined)
    return out


def _fake_routed_experts(
    x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, *, handle: int, layer: int, limit: float
) -> torch.Tensor:
    return x.new_empty(x.shape)


def _fake_linear(x: torch.Tensor, handle: int) -> torch.Tensor:
    return x.new_empty((x.shape[0], _LINEARS[handle][1].svh.shape[0]))


routed_experts = torch.library.custom_op("carve::routed_experts", _routed_experts, mutates_args=())
"""``(x float32 [rows, hidden], ids int32 [rows, topk], weights float32 [rows, topk], *, handle, layer, limit)`` to
float32 ``[rows, hidden]``; InputError with the typed reason where the variant declines."""
routed_experts.register_fake(_fake_routed_experts)

linear = torch.library.custom_op("carve::linear", _linear, mutates_args=())
"""``(x float32 [rows, in], handle)`` to float32 ``[rows, out]``; InputError where the library declines."""
linear.register_fake(_fake_linear)
