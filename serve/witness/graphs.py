"""Switching a variant where the engine replays graphs: each pattern of variants has graphs of its own.

A captured graph holds the launches of the variants that were on when it was captured, and a replay runs no Python. So
a switch gives every graph wrapper of the engine the set that was captured under the new pattern, or an empty one that
the engine then captures; the sets before stay and cost no second capture. What really runs is not believed from this:
the counts inside the graphs say it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

Pattern = tuple[str, ...]
"""The variant of each rank. All ranks follow every pattern together, because a capture holds collective operations."""


class Wrapper(Protocol):
    """vLLM's ``CUDAGraphWrapper``."""

    concrete_cudagraph_entries: dict[Any, Any]


class GraphSets:
    """The sets of one rank."""

    def __init__(self, first: Pattern) -> None:
        """``first`` is the pattern under which the engine captured at its start."""
        self.pattern = first
        self._kept: dict[Pattern, list[tuple[Wrapper, dict[Any, Any]]]] = {}

    def follow(self, pattern: Pattern, wrappers: Iterable[Wrapper], capture: Callable[[], None]) -> bool:
        """Put the pattern's graphs in place; whether they had to be captured."""
        if pattern == self.pattern:
            return False
        self._kept[self.pattern] = [(one, one.concrete_cudagraph_entries) for one in wrappers]
        known = {id(one): entries for one, entries in self._kept.get(pattern, ())}
        for one, _ in self._kept[self.pattern]:
            one.concrete_cudagraph_entries = known.get(id(one), {})
        self.pattern = pattern
        if known:
            return False
        capture()
        return True


def vllm_wrappers() -> tuple[Wrapper, ...]:
    """Every graph wrapper of this process, of the model, its pieces and its drafter.

    Raises RuntimeError where vLLM captures by its other wrapper, whose graphs lie elsewhere.
    """
    from vllm.compilation import breakable_cudagraph, cuda_graph  # noqa: PLC0415 (loads CUDA)

    if others := len(breakable_cudagraph.BreakableCUDAGraphWrapper._all_instances):
        raise RuntimeError(f"{others} breakable graph wrappers: their graphs cannot be switched; leave them off")
    return tuple(cuda_graph.CUDAGraphWrapper._all_instances)
