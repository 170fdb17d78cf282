"""What the C interfaces of both kinds of kernel library share (``kernels/cpu/abi.h``), and how one is opened."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.errors import SeatError

MAX_LAYERS = 256
ROW_BINS = 66

DECLINES = (
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
"""The typed decline reason of each ``carve_status``; the empty text is success."""

CALL_HEAD = (
    ("abi_version", ctypes.c_int32),
    ("layer", ctypes.c_int32),
    ("rows", ctypes.c_int32),
    ("hidden", ctypes.c_int32),
    ("intermediate", ctypes.c_int32),
    ("topk", ctypes.c_int32),
    ("experts", ctypes.c_int32),
    ("limit", ctypes.c_float),
)
"""How every call of the routed experts begins."""

TENSORS = (("trellis", ctypes.c_void_p), ("suh", ctypes.c_void_p), ("svh", ctypes.c_void_p))
"""How every coded matrix, or table of them, begins."""


class CLayerCounters(ctypes.Structure):
    """``carve_layer_counters``."""

    _fields_ = (("launches", ctypes.c_uint64), ("rows", ctypes.c_uint64 * ROW_BINS), ("declines", ctypes.c_uint64))


@dataclass(frozen=True)
class LayerCount:
    """One layer's own count by the library."""

    layer: int
    launches: int
    rows: tuple[tuple[int, int], ...]
    """(rows, launches) pairs, sorted; 65 stands for more than 64 rows."""
    declines: int


def counted(table: Iterable[CLayerCounters]) -> tuple[LayerCount, ...]:
    """Every layer that was called or that declined, of a library's counters."""
    return tuple(
        LayerCount(
            layer,
            entry.launches,
            tuple((size, number) for size, number in enumerate(entry.rows) if number),
            entry.declines,
        )
        for layer, entry in enumerate(table)
        if entry.launches or entry.declines
    )


def open_library(path: Path, what: str, names: Sequence[str]) -> tuple[ctypes.CDLL, list[Any]]:
    """The library and its functions of these names. SeatError where the file is no such library."""
    try:
        handle = ctypes.CDLL(str(path))
        return handle, [getattr(handle, name) for name in names]
    except (OSError, AttributeError) as error:
        raise SeatError(f"not a {what}", where=str(path), found=str(error)) from error
