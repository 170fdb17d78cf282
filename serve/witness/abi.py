"""ctypes view of ``kernels/cpu/abi.h`` and of the native witness."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path

ABI_VERSION = 1
MAX_LAYERS = 256
ROW_BINS = 66
OK = 0
INCUMBENT = "incumbent"

REASONS = {
    1: "rows-above-limit",
    2: "rows-below-limit",
    3: "shape",
    4: "bits",
    5: "codebook",
    6: "not-ready",
    7: "processor",
    8: "other",
}
"""``enum carve_status`` without CARVE_OK."""

CODEBOOKS = {"default": 0, "mcg": 1, "mul1": 2}


class Matrix(ctypes.Structure):
    """``carve_matrix``."""

    _fields_ = [
        ("trellis", ctypes.c_void_p),
        ("suh", ctypes.c_void_p),
        ("svh", ctypes.c_void_p),
        ("in_features", ctypes.c_int32),
        ("out_features", ctypes.c_int32),
        ("bits", ctypes.c_int32),
        ("codebook", ctypes.c_int32),
    ]


class Expert(ctypes.Structure):
    """``carve_expert``."""

    _fields_ = [("gate", Matrix), ("up", Matrix), ("down", Matrix)]


class Parallel(ctypes.Structure):
    """``carve_parallel``."""

    _fields_ = [("run", ctypes.c_void_p), ("thread_id", ctypes.c_void_p), ("threads", ctypes.c_int32)]


class MoeCall(ctypes.Structure):
    """``carve_moe_call``."""

    _fields_ = [
        ("abi_version", ctypes.c_int32),
        ("layer", ctypes.c_int32),
        ("rows", ctypes.c_int32),
        ("hidden", ctypes.c_int32),
        ("intermediate", ctypes.c_int32),
        ("topk", ctypes.c_int32),
        ("experts", ctypes.c_int32),
        ("limit", ctypes.c_float),
        ("x", ctypes.c_void_p),
        ("ids", ctypes.c_void_p),
        ("weights", ctypes.c_void_p),
        ("table", ctypes.POINTER(Expert)),
        ("out", ctypes.c_void_p),
        ("parallel", ctypes.POINTER(Parallel)),
    ]


class LinearCall(ctypes.Structure):
    """``carve_linear_call``."""

    _fields_ = [
        ("matrix", ctypes.POINTER(Matrix)),
        ("rows", ctypes.c_int32),
        ("x", ctypes.c_void_p),
        ("out", ctypes.c_void_p),
        ("parallel", ctypes.POINTER(Parallel)),
    ]


class LayerCounters(ctypes.Structure):
    """``carve_layer_counters``."""

    _fields_ = [
        ("launches", ctypes.c_uint64),
        ("rows", ctypes.c_uint64 * ROW_BINS),
        ("declines", ctypes.c_uint64),
    ]

    def histogram(self) -> tuple[tuple[int, int], ...]:
        """(rows, launches) pairs of the bins that are not empty."""
        return tuple((rows, int(count)) for rows, count in enumerate(self.rows) if count)


class NativeWitness:
    """The native witness library; ``moe`` and ``linear`` are the calls of the hot path."""

    def __init__(self, path: Path) -> None:
        library = ctypes.CDLL(str(path))
        version = library.carve_witness_abi()
        if version != ABI_VERSION:
            raise RuntimeError(f"{path}: the witness speaks ABI {version}, expected {ABI_VERSION}")
        counters = ctypes.POINTER(LayerCounters)
        library.carve_witness_set.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
        library.carve_witness_moe.argtypes = [ctypes.c_int, ctypes.c_void_p]
        library.carve_witness_linear.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_void_p]
        library.carve_witness_experts.argtypes = [ctypes.c_int]
        library.carve_witness_experts.restype = counters
        library.carve_witness_linears.argtypes = [ctypes.c_int]
        library.carve_witness_linears.restype = counters
        library.carve_witness_declines.argtypes = [ctypes.c_int, ctypes.c_int]
        library.carve_witness_declines.restype = counters
        self.moe = library.carve_witness_moe
        self.linear = library.carve_witness_linear
        self._library = library

    def set(self, variant: int, moe: int | None, linear: int | None) -> None:
        """Give a variant the addresses of its entry points. Raises RuntimeError past the sixteenth variant."""
        if self._library.carve_witness_set(variant, moe, linear) != 0:
            raise RuntimeError(f"variant number {variant} is more than the witness can hold")

    def experts(self, variant: int) -> Iterator[tuple[int, LayerCounters]]:
        """(layer index, counters) of routed experts that were launched."""
        return _used(self._library.carve_witness_experts(variant))

    def linears(self, variant: int) -> Iterator[tuple[int, LayerCounters]]:
        """(layer index, counters) of linear modules that were launched."""
        return _used(self._library.carve_witness_linears(variant))

    def declines(self, variant: int, reason: int) -> Iterator[tuple[int, LayerCounters]]:
        """(layer index, counters) of declines with one reason; ``launches`` is their number."""
        return _used(self._library.carve_witness_declines(variant, reason))


class VariantLibrary:
    """One variant's shared object. Raises OSError or AttributeError when it cannot serve the ABI."""

    def __init__(self, path: Path) -> None:
        self.path = path
        library = ctypes.CDLL(str(path), mode=ctypes.RTLD_LOCAL)
        library.carve_counters.restype = ctypes.POINTER(LayerCounters)
        library.carve_describe.restype = ctypes.c_char_p
        self.moe = ctypes.cast(library.carve_moe_forward, ctypes.c_void_p).value
        linear = getattr(library, "carve_linear_forward", None)
        self.linear = ctypes.cast(linear, ctypes.c_void_p).value if linear is not None else None
        self.description = library.carve_describe().decode()
        self._library = library

    def counters(self) -> Iterator[tuple[int, LayerCounters]]:
        """(layer index, counters) that the library kept for itself."""
        return _used(self._library.carve_counters())


def _used(table: ctypes._Pointer[LayerCounters]) -> Iterator[tuple[int, LayerCounters]]:
    if table:
        for layer in range(MAX_LAYERS):
            if table[layer].launches:
                yield layer, table[layer]
