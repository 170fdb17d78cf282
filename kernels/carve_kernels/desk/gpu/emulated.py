"""GPU kernels on the host: the same sources, compiled by g++ for the machine of ``native/emulator``.

It proves numbers, indices and schedules (who waits for what) without a GPU; speed and the memory model it does not.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from carve_kernels.abi import ROW_BINS, LayerCount
from carve_kernels.compiler import Workplace, build_once, compiler_words, read_sources, run_compiler
from carve_kernels.cuda.dense import DENSE_ABI, DenseCall, DenseLibrary
from carve_kernels.cuda.library import ABI_VERSION, COUNTERS_BYTES, TYPES, CExperts, Library, MoeCall, counts
from carve_kernels.cuda.registry import sources_folder, variant
from carve_kernels.desk.layers import Expert
from carve_kernels.exl3.linear import Linear

_MACHINE = "carve_kernels/desk/gpu/native/emulator"
_FLAGS = (
    *("-std=c++17", "-O2", "-fPIC", "-shared", "-fno-strict-aliasing", "-mf16c", "-Wall", "-Wno-unknown-pragmas"),
    *(f"-I{_MACHINE}", "-include", f"{_MACHINE}/cuda.h", "-x", "c++"),
)
CONTROL_BYTES = 32 * 8 + 32 * 256 * 4 + 65536 * 8
"""Ticket counters, arrivals and flags at the beginning of the scratch (``data_at`` in ``problem.cuh``)."""


def build(name: str, folder: Path | None = None) -> Path:
    """The library of GPU variant ``name`` for the host, tuned instantiations only; built once for each content.

    Those of ``dense`` are K 3, 4 and 6, of which each loads its words in a way of its own.
    """
    chosen, folder = variant(name), (folder or sources_folder()).resolve()
    flags = [*(f"-D{define}" for define in sorted({*chosen.defines, "CARVE_TUNED_ONLY"})), *_FLAGS]
    sources = read_sources(folder, chosen.source, (folder / _MACHINE).iterdir())
    compiler, library = (
        compiler_words("CXX", "g++", "C++", "install g++ (Debian: apt-get install g++)"),
        f"lib{name}.so",
    )
    digest = sources.digest(compiler, flags=flags, library=library)

    def make(place: Workplace) -> None:
        command = [*compiler, *flags, chosen.source, "-o", str(place.finished / library)]
        run_compiler(command, sources, place)

    return build_once(sources, digest, library, make)


class EmulatedExperts:
    """A layer in host memory, its tables, and a library that runs it. All experts have the same K and codebook."""

    def __init__(self, path: Path, experts: Sequence[Expert], *, max_rows: int, topk: int) -> None:
        self.library, self._experts = Library(path), tuple(experts)
        self._tables: list[NDArray[np.uint64]] = []
        gate, _, down = experts[0]
        self.hidden, self.intermediate = down.trellis.shape[1] * 16, gate.trellis.shape[1] * 16
        self.count, self.topk = len(experts), topk
        self._projections = [self._projection([expert[number] for expert in experts]) for number in range(3)]
        size = self.library.scratch_bytes(max_rows, self.hidden, self.intermediate, topk, self.count)
        self._scratch = np.zeros(size + 128, np.uint8)

    def forward(
        self, x: NDArray[np.float32], ids: NDArray[np.int32], weights: NDArray[np.float32], *, limit: float = 10.0
    ) -> tuple[str, NDArray[np.float32]]:
        """(decline reason, out): ``x [rows, hidden]``, rounded to half, ``ids`` and ``weights [rows, topk]``.

        ``out`` float32 ``[rows, hidden]`` was full of NaN before.
        """
        entry, out = x.astype(np.float16), np.full(x.shape, np.nan, np.float32)
        rows = x.shape[0]
        call = MoeCall(ABI_VERSION, 0, rows, self.hidden, self.intermediate, ids.shape[1], self.count, limit)
        call.x_type, call.out_type = TYPES.index("float16"), TYPES.index("float32")
        call.x, call.ids, call.weights, call.out = (array.ctypes.data for array in (entry, ids, weights, out))
        call.gate, call.up, call.down = self._projections
        start = -self._scratch.ctypes.data % 128
        call.scratch, call.scratch_bytes = self._scratch.ctypes.data + start, len(self._scratch) - 128
        return self.library.forward(call), out

    def poison_scratch(self) -> None:
        """NaN in all of the scratch but its control words."""
        self._scratch[-self._scratch.ctypes.data % 128 + CONTROL_BYTES :] = 0xFF

    def counts(self) -> tuple[LayerCount, ...]:
        """The library's own count."""
        return counts(ctypes.string_at(self.library.counters_address(), COUNTERS_BYTES))

    def _projection(self, parts: Sequence[Linear]) -> CExperts:
        tables = [
            np.array([getattr(part, name).ctypes.data for part in parts], np.uint64)
            for name in ("trellis", "suh", "svh")
        ]
        self._tables += tables
        bits, book = parts[0].trellis.shape[2] // 16, parts[0].codebook.abi
        return CExperts(*(table.ctypes.data for table in tables), bits, book)


class EmulatedLinears:
    """A group of linears with one input, K and codebook in host memory, and a library of ``dense.cu`` that runs it."""

    def __init__(self, path: Path, parts: Sequence[Linear], *, max_rows: int) -> None:
        self.library, self.parts = DenseLibrary(path), tuple(parts)
        width = sum(part.out_features for part in parts)
        self.control_bytes = self.library.scratch_bytes(0, parts[0].in_features, width)
        size = self.library.scratch_bytes(max_rows, parts[0].in_features, width)
        self._held = np.zeros(size + 16, np.uint8)
        start = -self._held.ctypes.data % 16
        self.scratch = self._held[start : start + size]
        """Control words, then partial sums."""
        self._cells = np.zeros(1 + ROW_BINS, np.uint64)

    def forward(self, x: NDArray[np.floating], *, passes: int = 0) -> tuple[str, list[NDArray[np.float32]]]:
        """(decline reason, outs): ``x [rows, in]`` float32 or float16.

        ``outs``, one float32 ``[rows, out]`` a part, were full of NaN before.
        """
        entry, rows = np.ascontiguousarray(x), x.shape[0]
        outs = [np.full((rows, part.out_features), np.nan, np.float32) for part in self.parts]
        first = self.parts[0]
        call = DenseCall(DENSE_ABI, rows, first.in_features, len(self.parts), first.bits, first.codebook.abi)
        call.x_type, call.out_type, call.passes = TYPES.index(entry.dtype.name), TYPES.index("float32"), passes
        call.x, call.scratch, call.scratch_bytes = entry.ctypes.data, self.scratch.ctypes.data, len(self.scratch)
        call.counters = self._cells.ctypes.data
        for place, part, out in zip(call.part, self.parts, outs, strict=False):
            place.trellis, place.suh, place.svh = (each.ctypes.data for each in (part.trellis, part.suh, part.svh))
            place.out, place.out_features = out.ctypes.data, part.out_features
        return self.library.forward(call), outs

    def counts(self) -> tuple[int, dict[int, int]]:
        """The library's own count: (launches, {rows: launches})."""
        launches, *rows = self._cells.tolist()
        return launches, {count: number for count, number in enumerate(rows) if number}
