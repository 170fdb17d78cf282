"""A GPU variant library seen from Python: the structures of ``kernels/cuda/abi.h``. Pointers are plain numbers here."""

from __future__ import annotations

import ctypes
import json
from pathlib import Path
from typing import Any

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
from runner.errors import InputError, SeatError

ABI_VERSION = 1
MAX_ROWS = 32
MAX_TOPK = 16
MAX_EXPERTS = 1024
TYPES = ("float32", "bfloat16", "float16")
"""``enum carve_type`` in order."""
BAD_CALL, RUNTIME = 100, 101


class CExperts(ctypes.Structure):
    """``carve_cuda_experts``: device arrays of device pointers, one a expert."""

    _fields_ = (
        *TENSORS,
        ("bits", ctypes.c_int32),
        ("codebook", ctypes.c_int32),
    )


class MoeCall(ctypes.Structure):
    """``carve_cuda_moe_call``."""

    _fields_ = (
        *CALL_HEAD,
        ("x_type", ctypes.c_int32),
        ("out_type", ctypes.c_int32),
        ("x", ctypes.c_void_p),
        ("ids", ctypes.c_void_p),
        ("weights", ctypes.c_void_p),
        ("gate", CExperts),
        ("up", CExperts),
        ("down", CExperts),
        ("out", ctypes.c_void_p),
        ("scratch", ctypes.c_void_p),
        ("scratch_bytes", ctypes.c_uint64),
        ("stream", ctypes.c_void_p),
    )


class Device(ctypes.Structure):
    """``carve_cuda_device``: what a launch is planned from."""

    _fields_ = (
        ("processors", ctypes.c_int32),
        ("shared_per_processor", ctypes.c_int32),
        ("shared_per_block", ctypes.c_int32),
        ("shared_reserved", ctypes.c_int32),
    )


class Plan(ctypes.Structure):
    """``carve_cuda_plan``: what a launch looks like."""

    _fields_ = (
        ("blocks", ctypes.c_int32),
        ("chunks", ctypes.c_int32),
        ("fragments", ctypes.c_int32),
        ("shared_bytes", ctypes.c_int32),
        ("scratch_bytes", ctypes.c_uint64),
    )


class Library:
    """A loaded GPU variant library; loading needs no GPU. SeatError where the file is not one of this ABI."""

    def __init__(self, path: Path) -> None:
        self.path = path
        names = ("moe_forward", "moe_plan", "moe_scratch", "counters", "describe", "last_error")
        self._handle, functions = open_library(path, "GPU kernel library", [f"carve_cuda_{name}" for name in names])
        self._forward, self._plan, self._scratch, self._counters, self._describe, self._error = functions
        self._forward.argtypes = [ctypes.POINTER(MoeCall)]
        self._plan.argtypes = [ctypes.POINTER(MoeCall), ctypes.POINTER(Device), ctypes.POINTER(Plan)]
        self._scratch.restype, self._counters.restype = ctypes.c_uint64, ctypes.c_void_p
        self._describe.restype = self._error.restype = ctypes.c_char_p

    def forward(self, call: MoeCall) -> str:
        """Queues the call on its stream. Returns the empty text, or the typed reason of a decline: nothing was queued.

        InputError for a call that contradicts itself (alignment, scratch too small, null pointers), SeatError with the
        CUDA runtime's own words where it refused.
        """
        return self._status(self._forward(ctypes.byref(call)))

    def plan(self, call: MoeCall, device: Device) -> tuple[str, Plan]:
        """(decline reason, plan) of a call on a device that need not be here; the call's pointers are not looked at."""
        found = Plan()
        return self._status(self._plan(ctypes.byref(call), ctypes.byref(device), ctypes.byref(found))), found

    def scratch_bytes(self, rows: int, hidden: int, intermediate: int, topk: int, experts: int) -> int:
        """Bytes of scratch on the current device for calls of at most ``rows`` rows of this shape."""
        size = int(self._scratch(rows, hidden, intermediate, topk, experts))
        if not size:
            raise SeatError("no CUDA device", where=str(self.path), found=self.last_error())
        return size

    def counters_address(self) -> int:
        """Device address of the library's own counters (COUNTERS_BYTES long); copy them on a stream of your own."""
        address = self._counters()
        if not address:
            raise SeatError("no CUDA device", where=str(self.path), found=self.last_error())
        return int(address)

    def describe(self) -> dict[str, Any]:
        """Name, device and the values chosen for it; SeatError without a device."""
        text = self._describe()
        if not text:
            raise SeatError("no CUDA device", where=str(self.path), found=self.last_error())
        described: dict[str, Any] = json.loads(text)
        return described

    def last_error(self) -> str:
        """The CUDA runtime's words for the last failure of this thread."""
        return str(self._error().decode())

    def _status(self, status: int) -> str:
        if status == BAD_CALL:
            raise InputError(
                "GPU kernel call contradicts itself",
                where=str(self.path),
                expected="abi.h's types, alignments and scratch_bytes",
                found="status 100",
            )
        if status == RUNTIME:
            raise SeatError("CUDA refused a kernel call", where=str(self.path), found=self.last_error())
        return DECLINES[status]


COUNTERS_BYTES = ctypes.sizeof(CLayerCounters) * MAX_LAYERS


def counts(raw: bytes) -> tuple[LayerCount, ...]:
    """Every layer that was called, from a copy of the counters (COUNTERS_BYTES); InputError for another length."""
    if len(raw) != COUNTERS_BYTES:
        raise InputError("not a copy of the counters", expected=f"{COUNTERS_BYTES} bytes", found=f"{len(raw)} bytes")
    return counted((CLayerCounters * MAX_LAYERS).from_buffer_copy(raw))
