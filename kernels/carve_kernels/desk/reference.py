"""Routed experts as the numbers should be: numpy, double precision, nothing shared with the kernels but the format."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from carve_kernels.desk.layers import Expert
from carve_kernels.exl3.linear import dequantise


class Reference:
    """The experts of one layer, dequantised once."""

    def __init__(self, experts: Sequence[Expert]) -> None:
        self._experts = [tuple(dequantise(part).astype(np.float64) for part in expert) for expert in experts]

    def forward(
        self, x: NDArray[np.float32], ids: NDArray[np.int32], weights: NDArray[np.float32], limit: float
    ) -> NDArray[np.float64]:
        """``x [rows, hidden]``, ``ids`` and ``weights [rows, topk]`` to ``[rows, hidden]``.

        Rounded to half where the campaign's boundaries say so (section 5.2): x at entry and the activation, no more.
        A negative id adds nothing; ``limit`` <= 0 means no clamp.
        """
        entry = x.astype(np.float16).astype(np.float64)
        out = np.zeros(x.shape, np.float64)
        for expert, (gate, up, down) in enumerate(self._experts):
            rows, slots = np.nonzero(ids == expert)
            if not len(rows):
                continue
            g, u = entry[rows] @ gate, entry[rows] @ up
            if limit > 0:
                g, u = np.minimum(g, limit), np.clip(u, -limit, limit)
            activation = (g / (1.0 + np.exp(-g)) * u).astype(np.float16).astype(np.float64)
            np.add.at(out, rows, weights[rows, slots].astype(np.float64)[:, np.newaxis] * (activation @ down))
        return out
