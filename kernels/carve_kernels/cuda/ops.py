"""The GPU kernels as torch operators: safe in CUDA graphs, with fake implementations for tracing.

An operator takes a handle of a layer or a group, because pointer tables, scratch and library outlive a call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import torch

from carve_kernels.abi import MAX_LAYERS, LayerCount
from carve_kernels.cuda.counters import at, copied
from carve_kernels.cuda.dense import DenseGroup
from carve_kernels.cuda.library import COUNTERS_BYTES, MAX_ROWS, TYPES, CExperts, Library, MoeCall, counts
from carve_kernels.cuda.scratch import Captures, capture_of
from carve_kernels.exl3.codebook import Codebook
from runner.errors import InputError

_Kept = TypeVar("_Kept")
Part = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
"""trellis int16 ``[in/16, out/16, 16 * bits]``, suh float16 ``[in]``, svh float16 ``[out]``, on one GPU."""
HALVES = (torch.bfloat16, torch.float16)
OUTPUTS = (torch.float32, *HALVES)


class Workspace:
    """The scratch of one library on one device, for layers of one shape.

    Eager launches share ``memory``, which one stream may use at a time; each graph capture has a buffer of its own.
    """

    def __init__(self, memory: torch.Tensor) -> None:
        """``memory``: zeroed bytes."""
        self.memory = memory
        self._captures = Captures(lambda: torch.zeros_like(memory))
        self._stream = 0
        self._done: torch.cuda.Event | None = None

    def enter(self, stream: torch.cuda.Stream) -> torch.Tensor:
        """The scratch of a launch on ``stream``. InputError where another stream's eager launch may still run."""
        if capture := capture_of(stream):
            return self._captures.take(capture, stream)
        if self._done is not None and stream.cuda_stream != self._stream and not self._done.query():
            raise InputError(
                "scratch is in use on another stream",
                expected="one stream at a time for the layers that share a workspace",
                found=f"streams {self._stream:#x} and {stream.cuda_stream:#x}",
                next_step="synchronise the streams or give the second one a workspace of its own",
            )
        self._captures.prepare()
        return self.memory

    def leave(self, stream: torch.cuda.Stream) -> None:
        """Remembers where the last eager launch stands."""
        if capture_of(stream):
            return
        self._stream = stream.cuda_stream
        self._done = self._done or torch.cuda.Event()
        self._done.record(stream)

    def nbytes(self) -> int:
        """Memory held on the device so far."""
        return int(self.memory.nbytes) + self._captures.nbytes()


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
        self.call.scratch_bytes = workspace.memory.numel()


def workspace(
    library: Library, device: torch.device, *, hidden: int, intermediate: int, topk: int, experts: int
) -> Workspace:
    """Zeroed scratch for up to MAX_ROWS rows of a shape; layers of one shape that run in order share it."""
    with torch.cuda.device(device):
        size = library.scratch_bytes(MAX_ROWS, hidden, intermediate, topk, experts)
    return Workspace(torch.zeros(size, dtype=torch.uint8, device=device))


def read_counts(library: Library, device: torch.device, *, queued: bool = True) -> tuple[LayerCount, ...]:
    """The library's own counters, read beside running work; ``queued`` as in :func:`copied`."""
    with torch.cuda.device(device):
        address = library.counters_address()
    cells = at(address, (MAX_LAYERS, COUNTERS_BYTES // MAX_LAYERS // 8), device)
    return counts(copied(cells, queued=queued).numpy().tobytes())


_LAYERS: list[Layer] = []
_GROUPS: list[DenseGroup] = []


def add_layer(layer: Layer) -> int:
    """Makes a layer known; the handle goes into :data:`routed_experts`."""
    _LAYERS.append(layer)
    return len(_LAYERS) - 1


def add_group(group: DenseGroup) -> int:
    """Makes a group known; the handle goes into :data:`linears`."""
    _GROUPS.append(group)
    return len(_GROUPS) - 1


def _layer_of_call(
    x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, *, handle: int, layer: int, out_dtype: torch.dtype
) -> Layer:
    """What the operator and its fake refuse alike, before anything is launched or traced."""
    known = _known(_LAYERS, handle, "layer")
    device = known.workspace.memory.device
    if x.dim() != 2 or ids.dim() != 2:
        raise InputError(
            "x and ids are not tables of rows",
            expected="[rows, hidden] and [rows, topk]",
            found=f"{tuple(x.shape)} and {tuple(ids.shape)}",
        )
    routes = (x.shape[0], ids.shape[1])
    _fits("x", x, HALVES, (x.shape[0], known.hidden), device)
    _fits("ids", ids, (torch.int32,), routes, device)
    _fits("weights", weights, (torch.float32,), routes, device)
    _is_output(out_dtype)
    if not 0 <= layer < MAX_LAYERS:
        raise InputError("no such place in the counters", expected=f"0 to {MAX_LAYERS - 1}", found=str(layer))
    return known


def _group_of_call(x: torch.Tensor, handle: int, out_dtype: torch.dtype) -> DenseGroup:
    known = _known(_GROUPS, handle, "group")
    if x.dim() != 2:
        raise InputError("x is no table of rows", expected="[rows, in]", found=str(tuple(x.shape)))
    _fits("x", x, OUTPUTS, (x.shape[0], known.in_features), known.device)
    _is_output(out_dtype)
    return known


def _known(all_known: Sequence[_Kept], handle: int, name: str) -> _Kept:
    if not 0 <= handle < len(all_known):
        expected = f"a handle below {len(all_known)}, as add_{name} gave it"
        raise InputError(f"no such {name}", expected=expected, found=str(handle))
    return all_known[handle]


def _fits(
    name: str, tensor: torch.Tensor, dtypes: tuple[torch.dtype, ...], shape: tuple[int, ...], device: torch.device
) -> None:
    if (
        tensor.dtype not in dtypes
        or tuple(tensor.shape) != shape
        or tensor.device != device
        or not tensor.is_contiguous()
    ):
        raise InputError(
            f"{name} does not fit the call",
            expected=f"contiguous {' or '.join(map(str, dtypes))} {shape} on {device}",
            found=f"{tensor.dtype} {tuple(tensor.shape)} on {tensor.device}, contiguous: {tensor.is_contiguous()}",
        )


def _is_output(dtype: torch.dtype) -> None:
    if dtype not in OUTPUTS:
        raise InputError("no such output type", expected=", ".join(map(str, OUTPUTS)), found=str(dtype))


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
    known = _layer_of_call(x, ids, weights, handle=handle, layer=layer, out_dtype=out_dtype)
    out = torch.empty(x.shape, dtype=out_dtype, device=x.device)
    call = MoeCall.from_buffer_copy(known.call)
    call.layer, call.rows, call.topk, call.limit = layer, x.shape[0], ids.shape[1], limit
    call.x_type, call.out_type = (TYPES.index(str(each.dtype).removeprefix("torch.")) for each in (x, out))
    call.x, call.ids, call.weights, call.out = (each.data_ptr() for each in (x, ids, weights, out))
    with torch.cuda.device_of(x):
        stream = torch.cuda.current_stream(x.device)
        call.stream = stream.cuda_stream
        call.scratch = known.workspace.enter(stream).data_ptr()
        if declined := known.library.forward(call):
            raise InputError("variant declined", where=str(known.library.path), found=declined)
        known.workspace.leave(stream)
    return out


def _fake_routed_experts(
    x: torch.Tensor,
    ids: torch.Tensor,
    weights: torch.Tensor,
    *,
    handle: int,
    layer: int,
    limit: float,
    out_dtype: torch.dtype,
) -> torch.Tensor:
    _layer_of_call(x, ids, weights, handle=handle, layer=layer, out_dtype=out_dtype)
    return x.new_empty(x.shape, dtype=out_dtype)


def _linears(x: torch.Tensor, *, handle: int, out_dtype: torch.dtype) -> list[torch.Tensor]:
    known = _group_of_call(x, handle, out_dtype)
    outs = _outputs(x, known, out_dtype)
    with torch.cuda.device_of(x):
        declined = known.forward(x, outs)
    if declined:
        raise InputError("variant declined", where=str(known.library.path), found=declined)
    return outs


def _fake_linears(x: torch.Tensor, *, handle: int, out_dtype: torch.dtype) -> list[torch.Tensor]:
    return _outputs(x, _group_of_call(x, handle, out_dtype), out_dtype)


def _outputs(x: torch.Tensor, group: DenseGroup, dtype: torch.dtype) -> list[torch.Tensor]:
    return [x.new_empty((x.shape[0], part.out_features), dtype=dtype) for part in group.parts]


routed_experts = torch.library.custom_op(
    "carve_cuda::routed_experts", _routed_experts, mutates_args=(), device_types="cuda"
)
"""``(x bfloat16 or float16 [rows, hidden], ids int32 [rows, topk], weights float32 [rows, topk], *, handle, layer,
limit, out_dtype)`` to ``[rows, hidden]``; InputError with the typed reason where the variant declines."""
routed_experts.register_fake(_fake_routed_experts)

linears = torch.library.custom_op("carve_cuda::linears", _linears, mutates_args=(), device_types="cuda")
"""``(x float32, bfloat16 or float16 [rows, in], *, handle, out_dtype)`` to one ``[rows, out]`` a part of the group, in
one launch; InputError with the typed reason where the variant declines."""
linears.register_fake(_fake_linears)


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
