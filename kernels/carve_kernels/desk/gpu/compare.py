"""Outputs against the reference, row by row and matrix by matrix: a concatenation would dilute one bad matrix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

SMALL_ROW = 1e-3
"""A reference row of at most this norm has no meaningful relative error (campaign gate B4) ..."""
SMALL_SCALE = 0.05
"""... its absolute error is divided by this instead, so that 1e-4 absolute meets a limit of 2e-3."""


@dataclass(frozen=True)
class Reading:
    """The worst row of one call."""

    relative_error: float
    norm_ratio: float
    finite: bool

    def worse(self, other: Reading) -> Reading:
        """Of two calls, each figure's worse one."""
        ratio = max(self.norm_ratio, other.norm_ratio, key=lambda value: abs(value - 1.0))
        error = max(self.relative_error, other.relative_error)
        return Reading(error, ratio, self.finite and other.finite)


def reading(outputs: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> Reading:
    """Worst row over all matrices; ``expected`` in double precision."""
    worst = Reading(0.0, 1.0, True)
    for out, true in zip(outputs, expected, strict=True):
        worst = worst.worse(_one(out.double(), true))
    return worst


def _one(out: torch.Tensor, true: torch.Tensor) -> Reading:
    if not bool(out.isfinite().all()):
        return Reading(1.0, 0.0, False)
    norms, scale = out.norm(dim=1), true.norm(dim=1)
    small = scale <= SMALL_ROW
    errors = (out - true).norm(dim=1) / torch.where(small, SMALL_SCALE, scale)
    ratios = torch.where(small, 1.0, norms / torch.where(small, 1.0, scale))
    furthest = ratios[(ratios - 1.0).abs().argmax()]
    return Reading(float(errors.max()), float(furthest), True)


def equal(first: Sequence[torch.Tensor], second: Sequence[torch.Tensor]) -> bool:
    """Bit by bit."""
    return all(torch.equal(a.view(torch.int32), b.view(torch.int32)) for a, b in zip(first, second, strict=True))


def decimal(value: float) -> str:
    """Six significant digits as decimal text; a float's own text may carry a plus sign in its exponent."""
    return f"{value:.6g}".replace("e+", "e")
