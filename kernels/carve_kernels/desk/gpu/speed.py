"""Our kernel against one version of the incumbent library, in one process: outputs checked before it is timed, and ours
again while it is.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from carve_kernels.desk.gpu import compare, incumbents
from carve_kernels.desk.gpu.timing import Timer, Times
from carve_kernels.desk.gpu.watch import Watch
from carve_kernels.desk.gpu.workload import Chosen, Problem, Workload
from runner.errors import SeatError

OURS = "candidate"


def run(
    workload: Workload,
    library: Path,
    seed: int,
    *,
    bits: Sequence[int],
    rows: Sequence[int],
    routes: Sequence[Chosen] = ("uniform",),
    cold: int,
    warm: int,
) -> list[dict[str, Any]]:
    """One case for each K, row count and kind of routes: times of our kernel and of every kernel of ``library`` that
    runs it.
    """
    module, timer = incumbents.load(library), Timer()
    cases: list[dict[str, Any]] = []
    for width, count, kind in itertools.product(bits, rows, routes):
        problems = workload.rotating(seed + 1000 * width + count, width, count, kind)
        name = {"id": f"k{width}-m{count}", "bits": width}
        if kind != "uniform":
            name = {"id": f"k{width}-m{count}-{kind}", "bits": width, "routes": kind}
        cases.append(name | _case(workload, problems, module, timer, seed + len(cases), cold=cold, warm=warm))
    return cases


def _case(
    workload: Workload, problems: list[Problem], module: ModuleType, timer: Timer, seed: int, *, cold: int, warm: int
) -> dict[str, Any]:
    outputs = [problem.outputs() for problem in problems]
    theirs = [problem.incumbents(module) for problem in problems]
    errors = {OURS: _check_ours(problems, outputs, timer)}
    errors |= {name: _check(problems, [calls[name] for calls in theirs], timer) for name in theirs[0]}
    before, _ = workload.counted()
    launch = [_launch(problem, out) for problem, out in zip(problems, outputs, strict=True)]
    kernels = {OURS: launch} | {name: [_quiet(calls[name]) for calls in theirs] for name in theirs[0]}
    again = {OURS: [_launch(problems[0], out) for out in outputs]}
    watch = Watch(OURS, problems, outputs, seed)
    times = timer.alternate(kernels, cold=cold, warm=warm, warm_calls=again, watch=watch)
    errors[OURS] = max(errors[OURS], watch.worst)
    counted, _ = workload.counted()
    return {
        "rows": problems[0].rows,
        "weights": round(sum(problem.weights for problem in problems) / len(problems)),
        "bytes": round(sum(problem.bytes for problem in problems) / len(problems)),
        "launches": timer.launches(len(problems), cold=cold, warm=warm),
        "counted": counted - before,
        "kernels": [_timing(name, errors[name], times[name]) for name in kernels],
    }


def _timing(name: str, error: float, times: Times) -> dict[str, Any]:
    return {
        "name": name,
        "relative_error": compare.decimal(error),
        "cold_ns": list(times.cold_ns),
        "warm_ns": list(times.warm_ns),
    }


def _launch(problem: Problem, out: list[torch.Tensor]) -> Callable[[], None]:
    def call() -> None:
        if declined := problem.launch(out):
            raise SeatError("the kernel under test declined a timed call", found=declined)

    return call


def _quiet(call: Callable[[], Any]) -> Callable[[], None]:
    def quiet() -> None:
        call()

    return quiet


def _check_ours(problems: list[Problem], outputs: list[list[torch.Tensor]], timer: Timer) -> float:
    def of(problem: Problem, out: list[torch.Tensor]) -> Callable[[], list[torch.Tensor]]:
        def call() -> list[torch.Tensor]:
            _launch(problem, out)()
            return out

        return call

    return _check(problems, [of(problem, out) for problem, out in zip(problems, outputs, strict=True)], timer)


def _check(problems: list[Problem], calls: list[Callable[[], list[torch.Tensor]]], timer: Timer) -> float:
    """Worst relative error over all problems."""
    worst = 0.0
    for problem, call in zip(problems, calls, strict=True):
        with torch.cuda.stream(timer.stream):
            for out in call():
                out.zero_()  # kernels that add to their output start from nothing
            outputs = call()
        timer.stream.synchronize()
        worst = max(worst, compare.reading(outputs, problem.expected()).relative_error)
    return worst
