"""What a processor gives the witness: variants that run, modules in its memory, and counts of everything that ran.

There are two, :mod:`serve.witness.cpu` and :mod:`serve.witness.cuda`; all else of plugin and witness is one code.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

from runner.model.base import Operator
from serve.witness.modules import Matrix

INCUMBENT = "incumbent"
Answer = tuple[torch.Tensor | None, str]
"""The output and an empty text, or nothing and the typed reason of a decline."""


@dataclass(frozen=True)
class Count:
    """Launches (or declines) of one layer, with a histogram of rows (65 stands for more than 64)."""

    layer: int
    launches: int
    rows: tuple[tuple[int, int], ...]


class VariantFile(Protocol):
    """A variant whose library is open."""

    path: Path


class Experts(Protocol):
    """Routed experts of one layer on this rank."""

    prefix: str
    index: int
    hidden: int
    topk: int

    @property
    def experts(self) -> Sequence[object]:
        """One for each expert that this rank holds."""
        ...

    def perturb(self, expert: int, projection: str, factor: float) -> None:
        """Serve this expert with a float16-rounded copy of ``svh`` times ``factor``; the loaded tensor stays."""
        ...

    def unperturb(self) -> None:
        """Serve the loaded ``svh`` again."""
        ...


class Linear(Protocol):
    """One linear module on this rank; a merged module holds several matrices side by side."""

    prefix: str
    index: int
    widths: tuple[int, ...]

    @property
    def matrices(self) -> Sequence[Matrix]:
        """Side by side in its output."""
        ...

    @property
    def inputs(self) -> int:
        """Width of what it reads."""
        ...


class Processor(Protocol):
    """One rank's processor."""

    device: torch.device
    replays: bool
    """Whether the engine replays captured graphs, which no Python sees: a variant then has graphs of its own."""

    def open(self, name: str, path: Path) -> VariantFile:
        """Raises OSError, AttributeError or CarveError where the library cannot serve."""
        ...

    def serves(self, variant: str, operator: Operator) -> bool:
        """Whether a variant has a kernel of its own for this operator; the incumbent has one for both."""
        ...

    def experts(
        self, prefix: str, index: int, experts: Sequence[tuple[Matrix, Matrix, Matrix]], *, topk: int, limit: float
    ) -> Experts:
        """The experts (gate, up, down) where this processor reads them."""
        ...

    def linear(self, prefix: str, index: int, matrices: Sequence[Matrix]) -> Linear:
        """The matrices where this processor reads them."""
        ...

    def run_experts(
        self, variant: str, module: Any, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor
    ) -> Answer:
        """One counted call on ``x`` [rows, hidden], ``ids`` and ``weights`` [rows, topk]; the output is like ``x``.

        ``module`` is one that this processor made.
        """
        ...

    def run_linear(self, variant: str, module: Any, x: torch.Tensor) -> Answer:
        """One counted call on ``x`` [rows, in]; the output is [rows, sum of widths] of the same type."""
        ...

    def ran(self, operator: Operator, variant: str, *, prewarm: bool = False) -> Iterable[Count]:
        """What the witness counted: while the engine warmed up and captured, or since."""
        ...

    def declined(self, variant: str, reason: str) -> Iterable[Count]:
        """Declines of routed experts and linears with one typed reason, by the routed or linear layer's index."""
        ...

    def own(self, variant: str) -> Iterable[Count]:
        """What the variant's library counted for itself."""
        ...

    def serve(self, serving: bool) -> None:
        """Count what follows as served, or as warm-up."""
        ...

    def scratch_bytes(self) -> int:
        """Memory that kernels and counters hold on this rank's device besides weights."""
        ...

    def memory(self) -> dict[str, int]:
        """What else the device holds, in bytes by name; nothing on a CPU."""
        ...

    def uuids(self) -> tuple[str, ...]:
        """Of this rank's devices; none on a CPU."""
        ...
