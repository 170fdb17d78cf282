"""A variant library seen from Python: the structures of ``kernels/cpu/abi.h`` over numpy memory."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from carve_kernels.abi import (
    CALL_HEAD,
    DECLINES,
    MAX_LAYERS,
    TENSORS,
    CLayerCounters,
    LayerCount,
    counted,
    open_library,
)
from carve_kernels.parallel import Parallel
from runner.errors import InputError, SeatError

ABI_VERSION = 1


class CMatrix(ctypes.Structure):
    """``carve_matrix``."""

    _fields_ = (
        *TENSORS,
        ("in_features", ctypes.c_int32),
        ("out_features", ctypes.c_int32),
        ("bits", ctypes.c_int32),
        ("codebook", ctypes.c_int32),
    )


class CExpert(ctypes.Structure):
    """``carve_expert``."""

    _fields_ = (("gate", CMatrix), ("up", CMatrix), ("down", CMatrix))


class MoeCall(ctypes.Structure):
    """``carve_moe_call``."""

    _fields_ = (
        *CALL_HEAD,
        ("x", ctypes.c_void_p),
        ("ids", ctypes.c_void_p),
        ("weights", ctypes.c_void_p),
        ("table", ctypes.POINTER(CExpert)),
        ("out", ctypes.c_void_p),
        ("parallel", ctypes.POINTER(Parallel)),
    )


class LinearCall(ctypes.Structure):
    """``carve_linear_call``."""

    _fields_ = (
        ("matrix", ctypes.POINTER(CMatrix)),
        ("rows", ctypes.c_int32),
        ("x", ctypes.c_void_p),
        ("out", ctypes.c_void_p),
        ("parallel", ctypes.POINTER(Parallel)),
    )


class _Book(Protocol):
    @property
    def abi(self) -> int: ...


class Tensors(Protocol):
    """A coded matrix, for example ``carve_kernels.exl3.linear.Linear``."""

    @property
    def trellis(self) -> NDArray[Any]: ...
    @property
    def suh(self) -> NDArray[Any]: ...
    @property
    def svh(self) -> NDArray[Any]: ...
    @property
    def codebook(self) -> _Book: ...


def matrix(trellis: NDArray[Any], suh: NDArray[Any], svh: NDArray[Any], codebook: int) -> CMatrix:
    """A ``carve_matrix`` that points into the arrays, which the caller keeps alive.

    ``trellis`` int16 or uint16 ``[in/16, out/16, 16 * bits]``, ``suh`` and ``svh`` float16, all contiguous, else
    InputError. A torch tensor's ``.numpy()`` shares its memory and will do.
    """
    for name, array, kinds in (("trellis", trellis, ("<u2", "<i2")), ("suh", suh, ("<f2",)), ("svh", svh, ("<f2",))):
        if array.dtype.str not in kinds or not array.flags.c_contiguous:
            raise InputError(
                f"{name} cannot be used by a kernel", expected=f"contiguous {kinds}", found=f"{array.dtype}"
            )
    rows, columns, words = trellis.shape
    if suh.shape != (rows * 16,) or svh.shape != (columns * 16,) or words % 16:
        raise InputError(
            "tensors of a matrix disagree",
            expected="trellis [in/16, out/16, 16 * bits], suh [in], svh [out]",
            found=f"{trellis.shape}, {suh.shape}, {svh.shape}",
        )
    return CMatrix(
        trellis.ctypes.data, suh.ctypes.data, svh.ctypes.data, rows * 16, columns * 16, words // 16, codebook
    )


class Table:
    """The experts of one layer as the ABI wants them; keeps the arrays alive."""

    def __init__(self, experts: Sequence[tuple[Tensors, Tensors, Tensors]]) -> None:
        """``experts``: (gate, up, down) of each, all of the same shapes (InputError otherwise)."""
        self._alive = list(experts)
        self.rows = (CExpert * len(experts))()
        for row, parts in zip(self.rows, experts, strict=True):
            for name, part in zip(("gate", "up", "down"), parts, strict=True):
                setattr(row, name, matrix(part.trellis, part.suh, part.svh, part.codebook.abi))
        shapes = {(row.gate.in_features, row.gate.out_features) for row in self.rows}
        if len(shapes) != 1:
            raise InputError("experts of a layer differ in shape", expected="one shape", found=str(sorted(shapes)))
        ((self.hidden, self.intermediate),) = shapes

    def __len__(self) -> int:
        return len(self.rows)


class Library:
    """A loaded variant library. SeatError where the file is not one of this ABI."""

    def __init__(self, path: Path) -> None:
        self.path = path
        names = ("carve_moe_forward", "carve_counters", "carve_describe")
        self._handle, (self._forward, self._counters, describe) = open_library(path, "kernel library", names)
        self._forward.argtypes = [ctypes.POINTER(MoeCall)]
        self._counters.restype = ctypes.POINTER(CLayerCounters)
        describe.restype = ctypes.c_char_p
        self.describe: dict[str, Any] = json.loads(describe())
        if self.describe["abi"] != ABI_VERSION:
            raise SeatError(
                "kernel library of another ABI", where=str(path), expected=str(ABI_VERSION), found=str(self.describe)
            )
        self.has_linear = hasattr(self._handle, "carve_linear_forward")

    def forward(
        self,
        x: NDArray[np.float32],
        ids: NDArray[np.int32],
        weights: NDArray[np.float32],
        table: Table,
        *,
        out: NDArray[np.float32],
        parallel: Parallel,
        limit: float = 0.0,
        layer: int = 0,
    ) -> str:
        """Routed experts on contiguous arrays: ``x [rows, hidden]``, ``ids`` and ``weights [rows, topk]``.

        Writes ``out [rows, hidden]`` and returns the empty text, or the typed reason of a decline, which wrote nothing.
        """
        _expect("x", x, np.float32, (x.shape[0], table.hidden))
        _expect("ids", ids, np.int32, (x.shape[0], ids.shape[-1]))
        _expect("weights", weights, np.float32, ids.shape)
        _expect("out", out, np.float32, x.shape)
        call = MoeCall(
            *(ABI_VERSION, layer, x.shape[0], table.hidden, table.intermediate, ids.shape[1], len(table), limit),
            *(
                x.ctypes.data,
                ids.ctypes.data,
                weights.ctypes.data,
                table.rows,
                out.ctypes.data,
                ctypes.pointer(parallel),
            ),
        )
        return DECLINES[self._forward(ctypes.byref(call))]

    def linear(self, x: NDArray[np.float32], part: Tensors, *, out: NDArray[np.float32], parallel: Parallel) -> str:
        """``out [rows, out] = linear(x [rows, in])``; the empty text or the reason of a decline. Incumbent only."""
        if not self.has_linear:
            raise InputError("library has no linear", where=str(self.path), expected="the incumbent's library")
        coded = matrix(part.trellis, part.suh, part.svh, part.codebook.abi)
        _expect("x", x, np.float32, (x.shape[0], coded.in_features))
        _expect("out", out, np.float32, (x.shape[0], coded.out_features))
        call = LinearCall(ctypes.pointer(coded), x.shape[0], x.ctypes.data, out.ctypes.data, ctypes.pointer(parallel))
        return DECLINES[self._handle.carve_linear_forward(ctypes.byref(call))]

    def decode(self, coded: CMatrix, out: NDArray[np.float32], repeats: int = 0) -> str:
        """The desk's ``decode`` library: ``out [in, out]`` becomes the coded matrix in the rotated basis.

        With ``repeats`` everything is decoded so many times and only one sum is written. Returns a decline reason.
        """
        status = self._handle.carve_decode(ctypes.byref(coded), ctypes.c_void_p(out.ctypes.data), repeats)
        return DECLINES[status]

    def counts(self) -> tuple[LayerCount, ...]:
        """Every layer that was called since the library was loaded."""
        return counted(self._counters()[:MAX_LAYERS])


def _expect(name: str, array: NDArray[Any], dtype: type[np.generic], shape: tuple[int, ...]) -> None:
    if array.dtype != dtype or array.shape != shape or not array.flags.c_contiguous:
        raise InputError(
            f"{name} does not fit the call",
            expected=f"contiguous {np.dtype(dtype)} {shape}",
            found=f"{array.dtype} {array.shape}",
        )
