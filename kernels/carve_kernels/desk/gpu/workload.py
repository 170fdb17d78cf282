"""What a kernel family gives the desk: problems to solve, and its own count of launches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Literal, Protocol

import torch

Chosen = Literal["uniform", "recorded"]
"""Experts that rows go to: uniform random ones, or those that the trained small pack chose."""


class Problem(Protocol):
    """One layer with one batch of inputs."""

    @property
    def rows(self) -> int:
        """Rows of the batch."""
        ...

    @property
    def weights(self) -> int:
        """Weights that have to be decoded: of the different experts, or of every part."""
        ...

    @property
    def bytes(self) -> int:
        """Trellis bytes that have to be read."""
        ...

    @property
    def x(self) -> torch.Tensor:
        """The batch ``[rows, in]``."""
        ...

    def outputs(self, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
        """Fresh outputs full of NaN."""
        ...

    def expected(self, *, of_pairs: bool = False) -> list[torch.Tensor]:
        """The outputs in double precision; ``of_pairs``: of weights that are the unrounded sums of their two halves."""
        ...

    def launch(self, outputs: Sequence[torch.Tensor]) -> str:
        """The kernel under test on the current stream; empty, or its typed decline."""
        ...

    def copy(self, dtype: torch.dtype | None = None) -> Problem:
        """The same with input buffers of its own, x perhaps of another type."""
        ...

    def variations(self, count: int) -> list[Problem]:
        """Problems of the same layer and rows with other inputs (and routes)."""
        ...

    def take(self, other: Problem) -> None:
        """Copy another problem's inputs (same layer and rows) into this one's buffers."""
        ...

    def renew(self, source: torch.Generator) -> None:
        """Other inputs into its buffers, which it shares with calls of other kernels."""
        ...

    def incumbents(self, module: ModuleType) -> Mapping[str, Callable[[], list[torch.Tensor]]]:
        """Calls of another library's kernels on the same inputs, by name."""
        ...


@dataclass(frozen=True)
class Group:
    """Problems whose worst reading makes one parity case."""

    name: str
    bits: int
    rows: int
    problems: tuple[Problem, ...]
    of_pairs: bool = False
    """Held to the reference of pairs as well, which is told beside the other."""


class Workload(Protocol):
    """A kernel family with one library under test."""

    @property
    def kernel(self) -> str:
        """What the profiler calls its kernels: a part of their names."""
        ...

    @property
    def describe(self) -> Mapping[str, object]:
        """What the library says of itself."""
        ...

    def parity(self, seed: int) -> Iterator[Group]:
        """Every case of the campaign's list that this family has."""
        ...

    def rotating(self, seed: int, bits: int, rows: int, routes: Chosen = "uniform") -> list[Problem]:
        """Problems of the served shape that together exceed the second-level cache.

        Raises InputError where the family knows no such routes.
        """
        ...

    def small(self, seed: int) -> list[Problem]:
        """A few problems that cover the code quickly, for tools that slow a program down."""
        ...

    def refusals(self) -> Mapping[str, tuple[str, str]]:
        """Calls that must be declined: name to (expected reason, what happened)."""
        ...

    def wrong_calls(self) -> Mapping[str, tuple[str, str]]:
        """Calls of the C ABI itself that differ from a right one in a field: name to (expected, what happened).

        The first is the right one, and it alone may run.
        """
        ...

    def questions(self, seed: int) -> Mapping[str, tuple[str, str]]:
        """What only this family can be asked: name to (expected, found)."""
        ...

    def poison_scratch(self) -> None:
        """Fill all scratch but its control words with NaN, on the current stream; nothing may run on another one."""
        ...

    def addresses(self) -> tuple[int, ...]:
        """Where all the scratch made so far lies."""
        ...

    def counted(self) -> tuple[int, dict[int, int]]:
        """The library's own count on the device: launches, and launches by rows."""
        ...
