"""Whoever is timed computes: before every replay inputs are new and outputs are NaN, after it they are looked at.

Otherwise a kernel that finds its answer in the output, or remembers it by the address of its inputs, would be timed at
doing nothing.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Literal

import torch

from carve_kernels.desk.gpu import compare, material
from carve_kernels.desk.gpu.workload import Problem

Phase = Literal["cold", "warm"]
COMPARED = 0.25
"""Chance that one output of a replay, drawn too, is compared with double precision; all must be finite always."""


class Watch:
    """Over the replays of one kernel. Cold replays solve every problem, warm ones the first, into every output."""

    def __init__(
        self, name: str, problems: Sequence[Problem], outputs: Sequence[Sequence[torch.Tensor]], seed: int
    ) -> None:
        self.name, self.problems, self.outputs = name, problems, outputs
        self.worst = 0.0
        """Largest relative error so far; 1 where an output was not written."""
        self._source, self._draw = material.generator(seed, outputs[0][0].device), random.Random(seed)

    def before(self) -> None:
        """On the current stream, untimed."""
        for problem in self.problems:
            problem.renew(self._source)
        for output in self.outputs:
            for part in output:
                part.fill_(torch.nan)

    def after(self, name: str, phase: Phase) -> None:
        """Once the replay of ``name`` has ended."""
        if name != self.name:
            return
        if not all(bool(part.isfinite().all()) for output in self.outputs for part in output):
            self.worst = 1.0
        if self._draw.random() < COMPARED:
            place = self._draw.randrange(len(self.problems))
            solved = self.problems[place if phase == "cold" else 0]
            self.worst = max(self.worst, compare.reading(self.outputs[place], solved.expected()).relative_error)


__all__ = ["Phase", "Watch"]
