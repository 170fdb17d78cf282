"""The profiler of the fake engine: what a torch profiler would write of a rank's made-up kernels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

DENSE, COLLECTIVE, SAMPLER = "exl3_gemm_kernel<6>", "ncclDevKernel_AllReduce_Sum_f32", "argmax_kernel"
_ROUTED = {"incumbent": "exl3_moe_kernel<2>"}
_DENSE_OF_A_LAYER = 4
_TOOK_NS = {DENSE: 20_000, COLLECTIVE: 9_000, SAMPLER: 4_000}
_GAP_NS = 1_000


def kernel_of(variant: str) -> str:
    """Name of the kernel that runs a variant's routed experts."""
    return _ROUTED.get(variant, f"{variant.replace('-', '_')}_kernel<2>")


class Recorder:
    """One rank's trace while the profiler runs."""

    def __init__(self, rank: int, ranks: int) -> None:
        self.rank, self.ranks = rank, ranks
        self._events: list[dict[str, Any]] = []
        self._now, self._written, self.running = 0, 0, False

    def start(self) -> None:
        """From now on steps are recorded."""
        self.running, self._events = True, []

    def step(self, annotation: str, variant: str, layers: int, step_ns: int, slower: float) -> None:
        """One step: an annotation on the host and on the device, and the kernels of every layer.

        ``step_ns`` is the time of all routed kernels of the step; ``slower`` is a factor on everything but waiting.
        """
        begin = self._now
        for _ in range(layers):
            self._kernel(kernel_of(variant), round(step_ns / layers * slower))
            for _ in range(_DENSE_OF_A_LAYER):
                self._kernel(DENSE, round(_TOOK_NS[DENSE] * slower))
            self._kernel(COLLECTIVE, _TOOK_NS[COLLECTIVE])
        self._kernel(SAMPLER, _TOOK_NS[SAMPLER])
        for category in ("user_annotation", "gpu_user_annotation"):
            self._event(category, annotation, begin, self._now - begin)

    def stop(self, folder: Path) -> None:
        """Write the trace, all at once and under a new name."""
        self.running = False
        self._written += 1
        folder.mkdir(parents=True, exist_ok=True)
        whole = {
            "schemaVersion": 1,
            "deviceProperties": [],
            "distributedInfo": {"backend": "fake", "rank": self.rank, "world_size": self.ranks},
            "traceEvents": self._events,
            "displayTimeUnit": "ms",
        }
        path = folder / f"rank{self.rank}.{self._written}.pt.trace.json"
        path.with_suffix(".torn").write_text(json.dumps(whole))
        path.with_suffix(".torn").rename(path)

    def _kernel(self, name: str, took: int) -> None:
        self._event("kernel", name, self._now, took, {"stream": 7, "graph node id": 1})
        self._now += took + _GAP_NS

    def _event(self, category: str, name: str, at: int, took: int, arguments: dict[str, Any] | None = None) -> None:
        fixed = {"ph": "X", "pid": 0, "tid": 0}
        times = {"ts": at / 1000, "dur": took / 1000}
        self._events.append({**fixed, "cat": category, "name": name, **times, "args": arguments or {}})
