"""The native trellis search (``kernels/cpu/quantise.cpp``), built on first use and called on numpy arrays.

It needs a C++17 compiler (``CXX``, default ``g++``). The library lies in the user's cache under a digest of its
sources, flags and compiler; building it takes about two seconds once.
"""

from __future__ import annotations

import ctypes
from enum import IntEnum
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from carve_kernels.compiler import Workplace, build_once, compiler_words, read_sources, run_compiler
from carve_kernels.exl3 import codebook, trellis
from carve_kernels.exl3.codebook import Codebook
from runner.errors import InputError, StateError
from runner.paths import source_root

# Contraction would round multiply and add once on processors with a fused operation and twice on others.
_FLAGS = ("-std=c++17", "-O3", "-ffp-contract=off", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror")
_LIBRARY = "libquantise.so"


class Isa(IntEnum):
    """Instruction sets of the search, by their number in the library; all give identical states."""

    SCALAR = 0
    AVX2 = 1
    AVX512 = 2


def best_isa() -> Isa:
    """The fastest instruction set of this processor."""
    return Isa(_library().carve_quantise_isa())


def search(tiles: NDArray[np.float32], bits: int, book: Codebook, isa: Isa | None = None) -> NDArray[np.uint16]:
    """The states ``[tiles, 256]`` whose weights come nearest (squared error) to ``tiles [tiles, 256]`` in stream order.

    Each tile's states form a closed ring (see ``trellis``). Deterministic and the same for every ``isa`` (default: the
    processor's best). One thread; the interpreter's lock is released meanwhile. InputError for a wrong shape or a value
    that is not finite, StateError where the processor lacks ``isa``.
    """
    trellis.words_per_tile(bits)
    if tiles.ndim != 2 or tiles.shape[1] != trellis.TILE_WEIGHTS:
        raise InputError("not tiles", expected="[tiles, 256]", found=str(tiles.shape))
    weights = np.ascontiguousarray(tiles, dtype=np.float32)
    if not np.isfinite(weights).all():
        raise InputError("weights cannot be quantised", expected="finite numbers", found="infinity or NaN")
    states = np.empty(weights.shape, dtype=np.uint16)
    values = codebook.table(book).astype(np.float32)
    chosen = best_isa() if isa is None else isa
    if _library().carve_quantise_tiles(weights, len(weights), bits, values, chosen, states):
        raise StateError("instruction set missing", expected=f"at most {best_isa().name}", found=chosen.name)
    return states


@cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(str(build()))
    library.carve_quantise_isa.argtypes = []
    library.carve_quantise_isa.restype = ctypes.c_int
    library.carve_quantise_tiles.argtypes = [
        np.ctypeslib.ndpointer(np.float32, flags="C_CONTIGUOUS"),
        ctypes.c_int64,
        ctypes.c_int,
        np.ctypeslib.ndpointer(np.float32, flags="C_CONTIGUOUS"),
        ctypes.c_int,
        np.ctypeslib.ndpointer(np.uint16, flags=("C_CONTIGUOUS", "WRITEABLE")),
    ]
    library.carve_quantise_tiles.restype = ctypes.c_int
    return library


def build() -> Path:
    """The library's path, compiled if need be; StateError without a compiler, InputError with its words."""
    compiler = compiler_words("CXX", "g++", "C++", "install g++ (Debian: apt-get install g++)")
    sources = read_sources((source_root() / "kernels" / "cpu").resolve(), "quantise.cpp")

    def make(place: Workplace) -> None:
        command = [*compiler, *_FLAGS, sources.source, "-o", str(place.finished / _LIBRARY)]
        run_compiler(command, sources, place)

    return build_once(sources, sources.digest(compiler, flags=_FLAGS), _LIBRARY, make)
