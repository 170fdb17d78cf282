"""The incumbent on a GPU: exllamav3's own operators, loaded from its compiled extension, one version a process.

It has no counter of its own. Rows are taken ``ROWS`` at a time, as many as its fused kernel holds for one expert, so no
call waits for the device and every call can be captured.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from carve_kernels.desk.gpu import incumbents
from carve_kernels.desk.gpu.moe import Layer

from serve.witness.modules import CODEBOOKS, Matrix

ROWS = 128
"""exllamav3 1.4.5 serves up to this many rows of one expert by its fused kernel."""
TUNED = 16
"""Its tuner of launches takes this many rows and all above for one case, and tries launches with the rows it is given:
with a whole prefill at hand it tried for 20 s a boot what 16 rows tell as well."""


class Exllamav3:
    """The extension and the scratch its fused kernel needs, one for each shape."""

    def __init__(self, path: Path, module: Any = None) -> None:
        """Raises SeatError where the extension does not load. ``module`` stands for it where there is no GPU."""
        self.path, self.module = path, module or _loaded(path)
        self._scratch: dict[tuple[int, int], list[torch.Tensor]] = {}
        self._tuned: set[tuple[torch.Size, str]] = set()

    def routed(
        self, layer: Layer, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, limit: float
    ) -> torch.Tensor:
        """``x`` half [rows, hidden], ``ids`` and ``weights`` [rows, topk] to float32 [rows, hidden]."""
        out = torch.zeros(x.shape, dtype=torch.float32, device=x.device)
        books = (layer.codebook == CODEBOOKS["mcg"], layer.codebook == CODEBOOKS["mul1"]) * 3
        bits = [projection.bits for projection in layer.projections]
        tables = [table for tables in layer.tables for table in tables]
        scratch = self.scratch(layer, x.device)
        for start in range(0, x.shape[0], ROWS):
            part = slice(start, start + ROWS)
            routes = sorted_routes(ids[part], weights[part], layer.experts)
            self.module.exl3_moe(x[part], out[part], *routes, *scratch, 0, *bits, *tables, *books, limit, -1)
        return out

    def linear(self, matrix: Matrix, x: torch.Tensor) -> torch.Tensor:
        """``x`` half [rows, in] to half [rows, out]."""
        shape = (matrix.trellis.shape, matrix.codebook)
        if x.shape[0] > TUNED and shape not in self._tuned:
            self._tuned.add(shape)
            self.linear(matrix, x[:TUNED])
        out = torch.empty((x.shape[0], matrix.out_features), dtype=torch.half, device=x.device)
        mcg, mul1 = matrix.codebook == "mcg", matrix.codebook == "mul1"
        rotated = torch.empty_like(x)
        self.module.exl3_gemm(x, matrix.trellis, out, matrix.suh, rotated, matrix.svh, -1, mcg, mul1, 0)
        return out

    def scratch(self, layer: Layer, device: torch.device) -> list[torch.Tensor]:
        """Of one shape, made on first use, which must come before a graph is captured."""
        shape = (layer.hidden, layer.intermediate)
        if shape not in self._scratch:
            groups = self.module.exl3_moe_max_concurrency(device.index or 0)
            self._scratch[shape] = [
                torch.empty((groups, ROWS, width), dtype=torch.half, device=device)
                for width in (*shape[:1] * 2, *shape[1:] * 2)
            ]
        return self._scratch[shape]

    def scratch_bytes(self) -> int:
        """Memory on the device."""
        return sum(int(each.nbytes) for scratch in self._scratch.values() for each in scratch)


def _loaded(path: Path) -> Any:
    flags = sys.getdlopenflags()
    try:
        return incumbents.load(path)
    finally:
        sys.setdlopenflags(flags)


def sorted_routes(
    ids: torch.Tensor, weights: torch.Tensor, experts: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(launches of each expert and of none int64 [experts + 1], rows int64 and weights half, both by expert).

    An id outside 0 .. experts - 1 is not on this rank. No step waits for the device.
    """
    flat = ids.flatten().long()
    flat = torch.where((flat < 0) | (flat >= experts), experts, flat)
    order = flat.argsort(stable=True)
    counts = torch.zeros(experts + 1, dtype=torch.int64, device=ids.device).scatter_add_(0, flat, torch.ones_like(flat))
    rows = torch.div(order, ids.shape[1], rounding_mode="floor")
    return counts, rows, weights.flatten()[order].half()
