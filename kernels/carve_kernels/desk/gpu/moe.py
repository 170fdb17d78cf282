"""A routed-experts library at the desk: layers as tables of device pointers, scratch a stream, the library's count."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from carve_kernels.abi import MAX_LAYERS, CLayerCounters
from carve_kernels.cuda import counters
from carve_kernels.cuda.library import ABI_VERSION, MAX_ROWS, TYPES, CExperts, Library, MoeCall
from runner.errors import InputError

PROJECTIONS = ("gate", "up", "down")
_CELLS = ctypes.sizeof(CLayerCounters) // 8


@dataclass(frozen=True)
class Projection:
    """One projection of E experts: int16 ``trellis [E, in/16, out/16, 16 K]``, half ``suh [E, in]`` and ``svh``."""

    trellis: torch.Tensor
    suh: torch.Tensor
    svh: torch.Tensor

    def __post_init__(self) -> None:
        experts, rows, columns, words = self.trellis.shape
        wanted = ((experts, 16 * rows), (experts, 16 * columns))
        if words % 16 or (tuple(self.suh.shape), tuple(self.svh.shape)) != wanted:
            raise InputError("a projection's tensors disagree", expected=str(wanted), found=str(tuple(self.suh.shape)))
        if self.trellis.dtype != torch.int16 or {self.suh.dtype, self.svh.dtype} != {torch.float16}:
            raise InputError(
                "a projection has the wrong types", expected="int16, half, half", found=str(self.suh.dtype)
            )
        if not all(one.is_cuda and one.is_contiguous() for one in (self.trellis, self.suh, self.svh)):
            raise InputError("a projection is not contiguous on a GPU", found=str(self.trellis.device))

    @property
    def bits(self) -> int:
        return int(self.trellis.shape[-1]) // 16

    def pointers(self) -> tuple[torch.Tensor, ...]:
        """Three int64 tables of device addresses, one an expert."""
        return tuple(
            torch.tensor([one.data_ptr() for one in whole], dtype=torch.int64, device=whole.device)
            for whole in (self.trellis, self.suh, self.svh)
        )


class Layer:
    """The experts of one layer. InputError where the projections do not fit each other."""

    def __init__(self, projections: Sequence[Projection], codebook: int) -> None:
        """``projections`` are gate, up and down."""
        gate, up, down = projections
        self.projections, self.codebook = (gate, up, down), codebook
        self.experts, self.hidden = gate.suh.shape
        self.intermediate = gate.svh.shape[1]
        shapes = [(tuple(one.suh.shape), tuple(one.svh.shape)) for one in self.projections]
        into = ((self.experts, self.hidden), (self.experts, self.intermediate))
        out = (into[1], into[0])
        if shapes != [into, into, out]:
            raise InputError("projections do not fit each other", expected=f"{into}, {into}, {out}", found=str(shapes))
        self.tables = tuple(one.pointers() for one in self.projections)


class MoeLibrary:
    """One built variant, with scratch of its own for every shape, and for each stream where several may run at once."""

    def __init__(self, path: Path, *, one_stream: bool = False) -> None:
        """``one_stream``: whoever calls lets no launch begin on a stream while another one's still runs."""
        self.native, self._one_stream = Library(path), one_stream
        self._scratch: dict[tuple[int, ...], torch.Tensor] = {}

    def forward(
        self,
        layer: Layer,
        x: torch.Tensor,
        ids: torch.Tensor,
        weights: torch.Tensor,
        out: torch.Tensor,
        *,
        limit: float,
        number: int = 0,
    ) -> str:
        """``x [rows, hidden]`` half or bfloat16, ``ids`` int32 and ``weights`` float32 ``[rows, topk]`` into ``out``.

        On the current stream; ``number`` is the layer's place in the counters. Empty, or the typed reason of a decline.
        InputError where a tensor does not fit, or the library says that the call contradicts itself.
        """
        return self.native.forward(self.call(layer, x, ids, weights, out, limit=limit, number=number))

    def call(
        self,
        layer: Layer,
        x: torch.Tensor,
        ids: torch.Tensor,
        weights: torch.Tensor,
        out: torch.Tensor,
        *,
        limit: float,
        number: int = 0,
    ) -> MoeCall:
        """What ``forward`` hands to the library. It holds addresses: keep the tensors as long."""
        rows = x.shape[0]
        _check(layer, x, ids, weights, out)
        stream = torch.cuda.current_stream(x.device).cuda_stream
        scratch = self.scratch(layer, ids.shape[1], stream)
        call = MoeCall(ABI_VERSION, number, rows, layer.hidden, layer.intermediate, ids.shape[1], layer.experts, limit)
        call.x_type, call.out_type = _type(x), _type(out)
        call.x, call.ids, call.weights, call.out = x.data_ptr(), ids.data_ptr(), weights.data_ptr(), out.data_ptr()
        call.scratch, call.scratch_bytes, call.stream = scratch.data_ptr(), scratch.numel(), stream
        for name, part, table in zip(PROJECTIONS, layer.projections, layer.tables, strict=True):
            setattr(call, name, CExperts(*(each.data_ptr() for each in table), part.bits, layer.codebook))
        return call

    def poison(self, control_bytes: int) -> None:
        """NaN in all scratch but its first ``control_bytes``, on the current stream."""
        for held in self._scratch.values():
            held[control_bytes:].fill_(0xFF)

    def addresses(self) -> tuple[int, ...]:
        """Where all scratch lies."""
        return tuple(held.data_ptr() for held in self._scratch.values())

    def scratch(self, layer: Layer, topk: int, stream: int) -> torch.Tensor:
        """Of one shape (and stream), zeroed on first use: make it before a graph is captured."""
        device = layer.projections[0].suh.device
        shape = (layer.hidden, layer.intermediate, topk, layer.experts)
        key = shape if self._one_stream else (*shape, stream)
        if key not in self._scratch:
            size = self.native.scratch_bytes(MAX_ROWS, *shape)
            self._scratch[key] = torch.zeros(size, dtype=torch.uint8, device=device)
        return self._scratch[key]

    def scratch_bytes(self) -> int:
        """Memory held on the device so far."""
        return sum(int(each.nbytes) for each in self._scratch.values())

    def cells(self, device: torch.device) -> torch.Tensor:
        """The library's counters, int64 ``[MAX_LAYERS, launches, a histogram of rows, declines]``, where they lie."""
        return counters.at(self.native.counters_address(), (MAX_LAYERS, _CELLS), device)

    def counted(self, device: torch.device) -> tuple[int, dict[int, int]]:
        """Launches and launches by rows over all layers, as the kernel counted on the device."""
        table = counters.copied(self.cells(device)).sum(dim=0).tolist()
        return table[0], {rows: count for rows, count in enumerate(table[1:-1]) if count}


def _type(tensor: torch.Tensor) -> int:
    return TYPES.index(str(tensor.dtype).removeprefix("torch."))


def _check(layer: Layer, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, out: torch.Tensor) -> None:
    rows = x.shape[0]
    if x.dim() != 2 or x.shape[1] != layer.hidden or x.dtype not in (torch.float16, torch.bfloat16):
        expected = f"half or bfloat16 [rows, {layer.hidden}]"
        raise InputError("x does not fit the layer", expected=expected, found=f"{x.dtype} {tuple(x.shape)}")
    if ids.dim() != 2 or ids.shape[0] != rows or ids.dtype != torch.int32:
        # A flat [rows * topk] table once sent every row to one expert (FL-15).
        raise InputError("ids do not fit x", expected=f"int32 [{rows}, topk]", found=f"{ids.dtype} {tuple(ids.shape)}")
    if weights.shape != ids.shape or weights.dtype != torch.float32:
        raise InputError("weights do not fit ids", expected=f"float32 {tuple(ids.shape)}", found=str(weights.dtype))
    if out.shape != x.shape or str(out.dtype).removeprefix("torch.") not in TYPES:
        raise InputError("out does not fit x", expected=str(tuple(x.shape)), found=str(tuple(out.shape)))
    _contiguous((x, ids, weights, out))


def _contiguous(tensors: Sequence[torch.Tensor]) -> None:
    if not all(one.is_cuda and one.is_contiguous() for one in tensors):
        raise InputError("a tensor is not contiguous on a GPU", found=str([one.is_contiguous() for one in tensors]))
