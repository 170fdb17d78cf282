"""What kernels of one rank hold on a GPU besides weights: the witness's counters, and scratch of the variants.

Pure arithmetic, for a prediction before the boot; what a boot really holds is read back as ``scratch_bytes``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from carve_kernels.abi import ROW_BINS
from carve_kernels.cuda.registry import FAULTY

from runner.errors import InputError
from serve.prediction import ScratchFormula

SLOTS = 8192
"""Counters of a rank, as in :mod:`serve.witness.device_counts`, which needs torch."""
_COUNTERS = 2 * SLOTS * (1 + ROW_BINS) * 8 + 4
"""Two banks of int64, and the word that names the one in use."""
_INCUMBENT_ROWS = 128
"""Rows of one expert that exllamav3's fused kernel holds, half each."""
_HOUSE_ROWS, _BLOCK = 32, 128
_HOUSE_BLOCKS, _HOUSE_WAVES = 2, 4
"""Most blocks on a processor and waves of chunks that ``lna2`` may be tuned to."""
_CONTROL = 32 * 8 + _HOUSE_ROWS * 256 * 4 + 65536 * 8
"""Its tickets, arrivals and flags (``kernels/cuda/problem.cuh``)."""

_Sizes = Callable[[int, int, int, int], int]
"""Bytes for hidden, intermediate, top-k and experts of one rank."""
_TICKETS = ("lna2", "lna2-paired", *FAULTY)
"""Variants that are one source, ``lna2.cu``; what is defined beside it changes no scratch."""
COVERED = frozenset({"incumbent", "lna", *_TICKETS})
"""Libraries with a rule."""
_WITHOUT = {
    "dense": "each group of matrices has scratch for each stream that it ran on, and how many these are nobody knows"
}
"""Why a library has none."""


def without_rule(libraries: Collection[str]) -> str:
    """The libraries whose scratch no rule covers, and why where that is known; empty where all are covered."""
    found = sorted(set(libraries) - COVERED)
    return "; ".join(f"{name}: {_WITHOUT[name]}" if name in _WITHOUT else name for name in found)


def scratch_of(libraries: Collection[str], *, processors: int, groups: int) -> ScratchFormula:
    """The formula of a rank that loads ``libraries`` (variant names) on a device with so many ``processors``.

    ``groups`` is how many experts exllamav3's fused kernel runs at once there (``exl3_moe_max_concurrency``).
    Raises InputError for a library whose scratch no rule covers.
    """

    def incumbent(hidden: int, intermediate: int, topk: int, experts: int) -> int:
        return groups * _INCUMBENT_ROWS * 2 * (hidden + intermediate) * 2

    def lna2(hidden: int, intermediate: int, topk: int, experts: int) -> int:
        pairs = _HOUSE_ROWS * min(topk, experts)
        chunks = processors * _HOUSE_BLOCKS * _HOUSE_WAVES
        partial = pairs * (intermediate // _BLOCK) + chunks * _HOUSE_ROWS
        return _CONTROL + partial * 2 * _BLOCK * 4 + pairs * hidden * 4

    def lna(hidden: int, intermediate: int, topk: int, experts: int) -> int:
        return _HOUSE_ROWS * topk * 3 * (hidden + intermediate) * 4

    rules: dict[str, _Sizes] = {"incumbent": incumbent, "lna": lna, **dict.fromkeys(_TICKETS, lna2)}
    if unknown := without_rule(libraries):
        raise InputError("no rule for a library's scratch", expected=", ".join(rules), found=unknown)

    def formula(rows: int, hidden: int, intermediate: int, topk: int, experts: int) -> int:
        return _COUNTERS + sum(rules[name](hidden, intermediate, topk, experts) for name in libraries)

    return formula


__all__ = ["COVERED", "SLOTS", "scratch_of", "without_rule"]
