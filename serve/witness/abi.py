"""The native witness and the variant libraries whose entry points it is given (``kernels/cpu/abi.h``)."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path

from carve_kernels.abi import MAX_LAYERS, CLayerCounters
from carve_kernels.exl3.codebook import Codebook
from carve_kernels.library import ABI_VERSION

INCUMBENT = "incumbent"
OK = 0
CODEBOOKS = {book.value: book.abi for book in Codebook}

Histogram = tuple[tuple[int, int], ...]


class NativeWitness:
    """The native witness library; ``moe`` and ``linear`` are the calls of the hot path."""

    def __init__(self, path: Path) -> None:
        library = ctypes.CDLL(str(path))
        version = library.carve_witness_abi()
        if version != ABI_VERSION:
            raise RuntimeError(f"{path}: the witness speaks ABI {version}, expected {ABI_VERSION}")
        counters = ctypes.POINTER(CLayerCounters)
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

    def experts(self, variant: int) -> Iterator[tuple[int, CLayerCounters]]:
        """(layer index, counters) of routed experts that were launched."""
        return _used(self._library.carve_witness_experts(variant))

    def linears(self, variant: int) -> Iterator[tuple[int, CLayerCounters]]:
        """(layer index, counters) of linear modules that were launched."""
        return _used(self._library.carve_witness_linears(variant))

    def declines(self, variant: int, reason: int) -> Iterator[tuple[int, CLayerCounters]]:
        """(layer index, counters) of declines with one reason; ``launches`` is their number."""
        return _used(self._library.carve_witness_declines(variant, reason))


class VariantLibrary:
    """One variant's shared object. Raises OSError or AttributeError when it cannot serve the ABI."""

    def __init__(self, path: Path) -> None:
        self.path = path
        library = ctypes.CDLL(str(path), mode=ctypes.RTLD_LOCAL)
        library.carve_counters.restype = ctypes.POINTER(CLayerCounters)
        library.carve_describe.restype = ctypes.c_char_p
        self.moe = ctypes.cast(library.carve_moe_forward, ctypes.c_void_p).value
        linear = getattr(library, "carve_linear_forward", None)
        self.linear = ctypes.cast(linear, ctypes.c_void_p).value if linear is not None else None
        self.description = library.carve_describe().decode()
        self._library = library

    def counters(self) -> Iterator[tuple[int, CLayerCounters]]:
        """(layer index, counters) that the library kept for itself."""
        return _used(self._library.carve_counters())


def _used(table: ctypes._Pointer[CLayerCounters]) -> Iterator[tuple[int, CLayerCounters]]:
    if table:
        for layer in range(MAX_LAYERS):
            if table[layer].launches:
                yield layer, table[layer]


def histogram(counters: CLayerCounters) -> Histogram:
    """(rows, launches) pairs of the bins that are not empty."""
    return tuple((rows, int(count)) for rows, count in enumerate(counters.rows) if count)
