"""Two linears of one input that a class calls in two places: one launch at the first call, handed over at the second.

Nothing waits for anybody. The second call takes its part only where it brings the very tensor that the part was made
of; with another input, or without a first call, it multiplies on its own. A second call that does not come (the class
skips its indexer while the context is short) leaves a part behind until the next first call, and no longer.
"""

from __future__ import annotations

import torch

from serve.plugin import operators
from serve.witness.processor import Linear


class Together:
    """What of a fan of two modules the second call has not taken yet."""

    def __init__(self, fan: Linear, first: Linear, second: Linear) -> None:
        self.fan, self.first, self.second = fan, first, second
        self._waiting: tuple[torch.Tensor, torch.Tensor] | None = None
        """The input, and the second module's part of what it gave."""

    def apply(self, module: Linear, x: torch.Tensor) -> torch.Tensor:
        """``x`` [..., in] through ``module``, one of the two: [rows, out]."""
        rows = x.reshape(-1, x.shape[-1])
        if module is self.first:
            mine, other = operators.fan(rows, self.fan, [self.first, self.second])
            self._waiting = (x, other)
            return mine
        waiting, self._waiting = self._waiting, None
        if waiting is not None and waiting[0] is x:
            return waiting[1]
        return operators.linear(rows, module.index, sum(module.widths))
