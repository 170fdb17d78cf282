"""The routed experts' libraries from Python: tables of device pointers, checked calls, the library's own count."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from runner.errors import InputError

ROWS, ROW_BINS, LAYERS = 32, 66, 256
PROJECTIONS = ("gate", "up", "down")
_ABI, _BAD_CALL = 1, 100
_TYPES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}
_DECLINES = (
    "",
    "rows-above-limit",
    "rows-below-limit",
    "shape",
    "bits",
    "codebook",
    "not-ready",
    "processor",
    "other",
)
_CELLS = 1 + ROW_BINS + 1
"""64-bit words of one layer's counters: launches, rows, declines."""


class _Experts(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("trellis", "suh", "svh")),
        *((name, ctypes.c_int32) for name in ("bits", "codebook")),
    )


class _Call(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int32) for name in ("abi_version", "layer", "rows", "hidden", "intermediate", "topk")),
        ("experts", ctypes.c_int32),
        ("limit", ctypes.c_float),
        *((name, ctypes.c_int32) for name in ("x_type", "out_type")),
        *((name, ctypes.c_void_p) for name in ("x", "ids", "weights")),
        *((name, _Experts) for name in PROJECTIONS),
        *((name, ctypes.c_void_p) for name in ("out", "scratch")),
        ("scratch_bytes", ctypes.c_uint64),
        ("stream", ctypes.c_void_p),
    )


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
    """One built variant with ``carve_cuda_moe_forward``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._native = ctypes.CDLL(str(path))
        self._native.carve_cuda_moe_scratch.restype = ctypes.c_uint64
        self._native.carve_cuda_describe.restype = ctypes.c_char_p
        self._native.carve_cuda_last_error.restype = ctypes.c_char_p
        self._native.carve_cuda_counters.restype = ctypes.c_void_p
        self._native.carve_cuda_moe_forward.argtypes = (ctypes.POINTER(_Call),)
        self._scratch: dict[tuple[int, ...], torch.Tensor] = {}

    @property
    def describe(self) -> dict[str, Any]:
        """What the library says of itself on the current device."""
        told: dict[str, Any] = json.loads(self._native.carve_cuda_describe())
        return told

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
        rows = x.shape[0]
        _check(layer, x, ids, weights, out)
        stream = torch.cuda.current_stream(x.device).cuda_stream
        scratch = self.scratch(layer, ids.shape[1], stream)
        call = _Call(_ABI, number, rows, layer.hidden, layer.intermediate, ids.shape[1], layer.experts, limit)
        call.x_type, call.out_type = _TYPES[x.dtype], _TYPES[out.dtype]
        call.x, call.ids, call.weights, call.out = x.data_ptr(), ids.data_ptr(), weights.data_ptr(), out.data_ptr()
        call.scratch, call.scratch_bytes, call.stream = scratch.data_ptr(), scratch.numel(), stream
        for name, part, table in zip(PROJECTIONS, layer.projections, layer.tables, strict=True):
            setattr(call, name, _Experts(*(each.data_ptr() for each in table), part.bits, layer.codebook))
        status = self._native.carve_cuda_moe_forward(ctypes.byref(call))
        if status >= len(_DECLINES):
            what = "the call contradicts itself" if status == _BAD_CALL else "the CUDA runtime refused the launch"
            words = (self._native.carve_cuda_last_error() or b"").decode(errors="replace")
            raise InputError(what, where=str(self.path), expected="a call as abi.h has it", found=f"{status} {words}")
        return _DECLINES[status]

    def scratch(self, layer: Layer, topk: int, stream: int) -> torch.Tensor:
        """One a shape and stream, zeroed on first use: make it before a graph is captured."""
        device = layer.projections[0].suh.device
        shape = (layer.hidden, layer.intermediate, topk, layer.experts)
        key = (*shape, stream)
        if key not in self._scratch:
            size = self._native.carve_cuda_moe_scratch(ROWS, *shape)
            self._scratch[key] = torch.zeros(size, dtype=torch.uint8, device=device)
        return self._scratch[key]

    def counted(self, device: torch.device) -> tuple[int, dict[int, int]]:
        """Launches and launches by rows over all layers, as the kernel counted on the device."""
        cells = torch.as_tensor(_Cells(self._native.carve_cuda_counters()), device=device)
        table = cells.view(LAYERS, _CELLS).sum(dim=0).tolist()
        return table[0], {rows: count for rows, count in enumerate(table[1 : 1 + ROW_BINS]) if count}


class _Cells:
    """The counters' memory as torch can see it."""

    def __init__(self, address: int) -> None:
        shape = (LAYERS * _CELLS,)
        self.__cuda_array_interface__ = {"shape": shape, "typestr": "<i8", "data": (address, False), "version": 3}


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
    if out.shape != x.shape or out.dtype not in _TYPES:
        raise InputError("out does not fit x", expected=str(tuple(x.shape)), found=str(tuple(out.shape)))
    _contiguous((x, ids, weights, out))


def _contiguous(tensors: Sequence[torch.Tensor]) -> None:
    if not all(one.is_cuda and one.is_contiguous() for one in tensors):
        raise InputError("a tensor is not contiguous on a GPU", found=str([one.is_contiguous() for one in tensors]))
