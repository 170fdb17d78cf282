"""Microseconds of a call, by CUDA graphs that hold many calls: launch gaps of the host do not count.

Cold: every call of the graph has its own weights and inputs, together more than the second-level cache, so that
serving's misses are paid. Warm: one set of weights and inputs again and again. Kernels that are compared alternate
replay by replay.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from carve_kernels.desk.gpu.watch import Phase, Watch

Call = Callable[[], None]


@dataclass(frozen=True)
class Times:
    """Nanoseconds a call, one figure a replay, in the order in which they were taken."""

    cold_ns: tuple[int, ...]
    warm_ns: tuple[int, ...]


WARM_UP = 2


class Timer:
    """Captures and times on one stream of its own."""

    def __init__(self) -> None:
        self.stream = torch.cuda.Stream()

    def graph(self, calls: Sequence[Call]) -> torch.cuda.CUDAGraph:
        """The calls, run once for real (first use allocates and tunes) and then captured."""
        with torch.cuda.stream(self.stream):
            for call in calls:
                call()
        self.stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self.stream):
            for call in calls:
                call()
        return graph

    def alternate(
        self,
        kernels: Mapping[str, Sequence[Call]],
        *,
        cold: int,
        warm: int,
        warm_calls: Mapping[str, Sequence[Call]] | None = None,
        watch: Watch | None = None,
    ) -> dict[str, Times]:
        """Each kernel's calls, one a set of inputs; ``cold`` and ``warm`` replays of each, in alternating order.

        ``warm_calls``: as many calls of the first set as there are sets, where they are not simply its call again.
        """
        again = {name: [calls[0]] * len(calls) for name, calls in kernels.items()} | dict(warm_calls or {})
        cold_graphs = {name: (self.graph(calls), len(calls)) for name, calls in kernels.items()}
        warm_graphs = {name: (self.graph(calls), len(calls)) for name, calls in again.items()}
        cold_times = self._replays(cold_graphs, cold, "cold", watch)
        warm_times = self._replays(warm_graphs, warm, "warm", watch)
        return {name: Times(tuple(cold_times[name]), tuple(warm_times[name])) for name in kernels}

    @staticmethod
    def launches(calls: int, *, cold: int, warm: int) -> int:
        """Launches of one kernel that :meth:`alternate` really makes: twice directly, then every replay."""
        return calls * (2 + (cold + WARM_UP) + (warm + WARM_UP))

    def _replays(
        self, graphs: Mapping[str, tuple[torch.cuda.CUDAGraph, int]], count: int, phase: Phase, watch: Watch | None
    ) -> dict[str, list[int]]:
        times: dict[str, list[int]] = {name: [] for name in graphs}
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        with torch.cuda.stream(self.stream):
            for number in range(-WARM_UP, count):
                for name in graphs if number % 2 else reversed(list(graphs)):
                    graph, calls = graphs[name]
                    if watch:
                        watch.before()
                    start.record(self.stream)
                    graph.replay()
                    end.record(self.stream)
                    end.synchronize()
                    if watch:
                        watch.after(name, phase)
                    if number >= 0:
                        times[name].append(round(start.elapsed_time(end) * 1e6 / calls))
        return times
