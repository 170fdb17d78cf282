"""Routed experts on the GPU as a torch operator: safe in CUDA graphs, with a fake implementation for tracing.

An operator takes a handle of a layer, because pointer tables, scratch and library outlive a call.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from carve_kernels.abi import LayerCount
from carve_kernels.cuda.library import COUNTERS_BYTES, MAX_ROWS, TYPES, CExperts, Library, MoeCall, counts
from carve_kernels.exl3.codebook import Codebook
from runner.errors import InputError

Part = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
"""trellis int16 ``[in/16, out/16, 16 * bits]``, suh float16 ``[in]``, svh float16 ``[out]``, on one GPU."""


@dataclass
class Workspace:
    """The scratch of one library on one device: a launch finds it as the last one left it, so one stream may use it."""

    memory: torch.Tensor
    stream: int = 0
    done: torch.cuda.Event | None = field(default=None)

    def enter(self, stream: torch.cuda.Stream) -> None:
        """InputError where another stream's launch may still run; in a graph capture the order of replays decides."""
        if torch.cuda.is_current_stream_capturing():
            return
        if self.done is not None and stream.cuda_stream != self.stream and not self.done.query():
            raise InputError(
                "scratch is in use on another stream",
                expected="one stream at a time for the layers that share a workspace",
                found=f"streams {self.stream:#x} and {stream.cuda_stream:#x}",
                next_step="synchronise the streams or give the second one a workspace of its own",
            )

    def leave(self, stream: torch.cuda.Stream) -> None:
        """Remembers where the last launch stands."""
        if torch.cuda.is_current_stream_capturing():
            return
        self.stream = stream.cuda_stream
        self.done = self.done or torch.cuda.Event()
        self.done.record(stream)


class Layer:
    """The experts of one layer, ready for calls: pointer tables on the device, tensors kept alive."""

    def __init__(
        self, library: Library, experts: Sequence[tuple[Part, Part, Part]], codebook: Codebook, workspace: Workspace
    ) -> None:
        """``experts``: (gate, up, down) of each. InputError where types, shapes, devices or alignments do not fit."""
        self.library, self.workspace, self._alive = library, workspace, list(experts)
        gate, _, down = experts[0]
        self.hidden, self.intermediate, self.experts = gate[1].numel(), down[1].numel(), len(experts)
        self.call = MoeCall(abi_version=1, hidden=self.hidden, intermediate=self.intermediate, experts=self.experts)
        shapes = {"gate": (self.hidden, self.intermediate), "up": (self.hidden, self.intermediate)}
        shapes["down"] = (self.intermediate, self.hidden)
        self._tables: list[torch.Tensor] = []
        for index, (name, shape) in enumerate(shapes.items()):
            parts = [expert[index] for expert in experts]
            bits = parts[0][0].shape[-1] // 16
            for part in parts:
                _check(name, part, shape, bits, workspace.memory.device)
            tables = [torch.tensor([part[i].data_ptr() for part in parts], dtype=torch.int64) for i in range(3)]
            self._tables += [table.to(workspace.memory.device) for table in tables]
            pointers = [table.data_ptr() for table in self._tables[-3:]]
            setattr(self.call, name, CExperts(*pointers, bits, codebook.abi))
        self.call.scratch = workspace.memory.data_ptr()
        self.call.scratch_bytes = workspace.memory.numel()


def workspace(
    library: Library, device: torch.device, *, hidden: int, intermediate: int, topk: int, experts: int
) -> Workspace:
    """Zeroed scratch for up to MAX_ROWS rows of a shape; layers of one shape that run in order share it."""
    with torch.cuda.device(device):
        size = library.scratch_bytes(MAX_ROWS, hidden, intermediate, topk, experts)
    return Workspace(torch.zeros(size, dtype=torch.uint8, device=device))


def read_counts(library: Library, device: torch.device) -> tuple[LayerCount, ...]:
    """The library's own counters, read on a stream of their own: running work is not stopped."""
    with torch.cuda.device(device):
        address = library.counters_address()
        stream = torch.cuda.Stream()
        host = torch.empty(COUNTERS_BYTES, dtype=torch.uint8, pin_memory=True)
        runtime = ctypes.CDLL(f"libcudart.so.{str(torch.version.cuda).split('.', maxsplit=1)[0]}")
        status = runtime.cudaMemcpyAsync(
            *(ctypes.c_void_p(host.data_ptr()), ctypes.c_void_p(address), ctypes.c_size_t(COUNTERS_BYTES)),
            *(2, ctypes.c_void_p(stream.cuda_stream)),
        )
        stream.synchronize()
    if status:
        raise InputError("counters cannot be read", where=str(library.path), expected="cudaSuccess", found=str(status))
    return counts(host.numpy().tobytes())


_LAYERS: list[Layer] = []


def add_layer(layer: Layer) -> int:
    """Makes a layer known; the handle goes into :data:`routed_experts`."""
    _LAYERS.append(layer)
    return len(_LAYERS) - 1


def _routed_experts(
    x: torch.Tensor,
    ids: torch.Tensor,
    weights: torch.Tensor,
    *,
    handle: int,
    layer: int,
    limit: float,
    out_dtype: torch.dtype,
) -> torch.Tensor:
    known = _LAYERS[handle]
    rows, topk = x.shape[0], ids.shape[-1]
    for name, tensor, dtypes, shape in (
        ("x", x, (torch.bfloat16, torch.float16), (rows, known.hidden)),
        ("ids", ids, (torch.int32,), (rows, topk)),
        ("weights", weights, (torch.float32,), (rows, topk)),
    ):
        if tensor.dtype not in dtypes or tuple(tensor.shape) != shape or not tensor.is_contiguous():
            raise InputError(
                f"{name} does not fit the call",
                expected=f"contiguous {dtypes} {shape}",
                found=f"{tensor.dtype} {tuple(tensor.shape)}, contiguous: {tensor.is_contiguous()}",
            )
    out = torch.empty(x.shape, dtype=out_dtype, device=x.device)
    call = MoeCall.from_buffer_copy(known.call)
    call.layer, call.rows, call.topk, call.limit = layer, rows, topk, limit
    call.x_type, call.out_type = (TYPES.index(str(each.dtype).removeprefix("torch.")) for each in (x, out))
    call.x, call.ids, call.weights, call.out = (each.data_ptr() for each in (x, ids, weights, out))
    stream = torch.cuda.current_stream(x.device)
    call.stream = stream.cuda_stream
    known.workspace.enter(stream)
    if declined := known.library.forward(call):
        raise InputError("variant declined", where=str(known.library.path), found=declined)
    known.workspace.leave(stream)
    return out


def _fake(
    x: torch.Tensor,
    ids: torch.Tensor,
    weights: torch.Tensor,
    *,
    handle: int,
    layer: int,
    limit: float,
    out_dtype: torch.dtype,
) -> torch.Tensor:
    return x.new_empty(x.shape, dtype=out_dtype)


routed_experts = torch.library.custom_op(
    "carve_cuda::routed_experts", _routed_experts, mutates_args=(), device_types="cuda"
)
"""``(x bfloat16 or float16 [rows, hidden], ids int32 [rows, topk], weights float32 [rows, topk], *, handle, layer,
limit, out_dtype)`` to ``[rows, hidden]``; InputError with the typed reason where the variant declines."""
routed_experts.register_fake(_fake)


def _check(name: str, part: Part, shape: tuple[int, int], bits: int, device: torch.device) -> None:
    expected = (shape[0] // 16, shape[1] // 16, 16 * bits)
    for kind, tensor, dtype, size in zip(
        ("trellis", "suh", "svh"),
        part,
        (torch.int16, torch.float16, torch.float16),
        (expected, shape[:1], shape[1:]),
        strict=True,
    ):
        aligned = tensor.data_ptr() % 16 == 0
        if (
            tensor.dtype != dtype
            or tuple(tensor.shape) != size
            or tensor.device != device
            or not tensor.is_contiguous()
            or not aligned
        ):
            raise InputError(
                f"{kind} cannot be used by the kernel",
                where=name,
                expected=f"contiguous {dtype} {size} on {device}, 16-byte aligned",
                found=f"{tensor.dtype} {tuple(tensor.shape)} on {tensor.device}, aligned: {aligned}",
            )
