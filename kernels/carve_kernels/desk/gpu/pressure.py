"""Where the time goes: floors of this very card, and the kernel with its loads but without its decoding."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from carve_kernels.desk.gpu import compare
from carve_kernels.desk.gpu.timing import Timer
from carve_kernels.desk.gpu.watch import Watch
from carve_kernels.desk.gpu.workload import Problem, Workload


def run(
    full: Workload, null: Workload, ceilings: Path, seed: int, *, bits: Sequence[int], rows: Sequence[int], replays: int
) -> dict[str, Any]:
    """Ceilings of the card, and for each K and row count the times of both builds with the floors that they imply."""
    card, timer = Ceilings(ceilings), Timer()
    read = card.read_bytes_per_second()
    decode = {width: card.decode_weights_per_second(width) for width in bits}
    cases: list[dict[str, Any]] = []
    for width in bits:
        for count in rows:
            builds = {"full": full.rotating(seed, width, count), "null": null.rotating(seed, width, count)}
            cases.append(_case(builds, timer, width, replays, seed + len(cases)))
    for case in cases:
        case["byte_floor_ns"] = round(case["bytes"] / read * 1e9)
        case["decode_floor_ns"] = round(case["weights"] / decode[case["bits"]] * 1e9)
    return {
        "read_bytes_per_second": round(read),
        "decode_weights_per_second": {str(width): round(rate) for width, rate in decode.items()},
        "cases": cases,
    }


def _case(builds: dict[str, list[Problem]], timer: Timer, bits: int, replays: int, seed: int) -> dict[str, Any]:
    outputs = {name: [problem.outputs() for problem in problems] for name, problems in builds.items()}
    kernels = {
        name: [_call(problem, out) for problem, out in zip(problems, outputs[name], strict=True)]
        for name, problems in builds.items()
    }
    problems = builds["full"]
    watch = Watch("full", problems, outputs["full"], seed)
    again = {"full": [_call(problems[0], out) for out in outputs["full"]]}
    times = timer.alternate(kernels, cold=replays, warm=1, warm_calls=again, watch=watch)
    full, null = (compare.reading(outputs[name][0], builds[name][0].expected()) for name in ("full", "null"))
    return {
        "id": f"k{bits}-m{problems[0].rows}",
        "bits": bits,
        "rows": problems[0].rows,
        "weights": round(sum(problem.weights for problem in problems) / len(problems)),
        "bytes": round(sum(problem.bytes for problem in problems) / len(problems)),
        "full_ns": list(times["full"].cold_ns),
        "null_ns": list(times["null"].cold_ns),
        "full_error": compare.decimal(max(watch.worst, full.relative_error)),
        "null_error": compare.decimal(null.relative_error),
    }


def _call(problem: Problem, out: list[Any]) -> Any:
    def call() -> None:
        problem.launch(out)

    return call


class Ceilings:
    """The desk's own small library: how fast the card reads, and how fast it decodes without reading."""

    def __init__(self, path: Path) -> None:
        self._native = ctypes.CDLL(str(path))
        self._native.carve_read_rate.restype = ctypes.c_double
        self._native.carve_decode_rate.restype = ctypes.c_double

    def read_bytes_per_second(self) -> float:
        """Streaming 16-byte loads over 4 GB."""
        return float(self._native.carve_read_rate())

    def decode_weights_per_second(self, bits: int) -> float:
        """mcg windows from shared memory to pairs of halves and into the matrix units, in the cheapest way known."""
        return float(self._native.carve_decode_rate(bits))
