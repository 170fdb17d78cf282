"""Milliseconds of one core for a tile of the trellis search: ``python -m tests.benchmarks.trellis_search``.

A benchmark, not a test: the median of nine searches of eight tiles, for each K and instruction set of this processor.
"""

from __future__ import annotations

import statistics
import time

import numpy as np
from carve_kernels.exl3 import native
from carve_kernels.exl3.codebook import Codebook
from carve_kernels.exl3.native import Isa
from carve_kernels.exl3.trellis import TILE_WEIGHTS

TILES = 8


def main() -> None:
    """A line for each K and instruction set."""
    tiles = np.random.default_rng(0).standard_normal((TILES, TILE_WEIGHTS)).astype(np.float32)
    for bits in range(1, 9):
        for isa in (one for one in Isa if one <= native.best_isa()):
            spent = []
            for _ in range(9):
                before = time.thread_time()
                native.search(tiles, bits, Codebook.MCG, isa)
                spent.append(time.thread_time() - before)
            print(f"K {bits}  {isa.name:7}  {statistics.median(spent) / TILES * 1e3:7.2f} ms a tile")


if __name__ == "__main__":
    main()
