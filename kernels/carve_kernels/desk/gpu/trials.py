"""Trial designs of the routed experts side by side on one card: ``python -P -m carve_kernels.desk.gpu.trials``.

First every design is held to the reference at every row count; then all of them and the incumbent alternate, replay by
replay, on the same inputs; then the phases of the builds with clocks are read. What is wrong is named and not timed. A
search for people: nothing of it is evidence, the order's own job measures the design that wins.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from carve_kernels.cuda.library import MAX_ROWS
from carve_kernels.desk.gpu import compare, incumbents
from carve_kernels.desk.gpu.routed import SERVED, RoutedProblem, RoutedWorkload
from carve_kernels.desk.gpu.timing import Timer
from carve_kernels.desk.layers import ROUTES

BOUND = 2e-3
MARKS = {
    1: "routes",
    2: "copies asked for",
    3: "inputs transformed",
    4: "gate and up",
    5: "partial sums told",
    6: "down begins",
    7: "flags seen",
    8: "activations, or down of a turn",
    10: "down finished",
    11: "combined",
}
"""Phase clocks of ``problem.cuh`` and ``cluster.cuh``."""
_CLOCKS = (1024, 16)
_PROBLEM = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


class Designs:
    """The libraries of a folder, all on the same layers."""

    def __init__(self, folder: Path, seed: int) -> None:
        files = sorted(folder.glob("lib*.so"))
        device = torch.device("cuda:0")
        made = {file.stem.removeprefix("lib"): RoutedWorkload(file, device, "routed_experts") for file in files}
        self.all: dict[str, RoutedWorkload] = made
        self.seed, first = seed, next(iter(made.values()))
        self.layers = {bits: first.served(seed, bits) for bits in (2, 3)}

    def problem(self, name: str, bits: int, tensors: _PROBLEM) -> RoutedProblem:
        """The same inputs for every design."""
        return RoutedProblem(self.layers[bits], self.all[name].library, *tensors)

    def inputs(self, bits: int, rows: int) -> list[_PROBLEM]:
        """Sixteen sets of uniform random routes."""
        problems = next(iter(self.all.values())).rotating(self.seed + rows, bits, rows)
        return [(one.x, one.ids, one.route_weights) for one in problems if isinstance(one, RoutedProblem)]


def recorded(file: Path, rows: int, sets: int, device: torch.device) -> list[torch.Tensor]:
    """Routes of the small model: rows are neighbouring tokens; a row's experts are those of two of its layers.

    Twelve experts of 256 are ever chosen, spread over the layer.
    """
    told = json.loads(file.read_bytes())
    experts, found = told["experts"], []
    for number in range(sets):
        text = told["texts"][number % len(told["texts"])]
        first = number * 37 % (len(text) - rows)
        ids = [
            [(layer * experts + one) * (SERVED.experts // (2 * experts)) for layer in (0, 1) for one in token[layer]]
            for token in text[first : first + rows]
        ]
        found.append(torch.tensor(ids, dtype=torch.int32, device=device).contiguous())
    return found


def parity(designs: Designs, rows: Sequence[int]) -> Iterator[dict[str, Any]]:
    """Worst row of every design at every row count, with all kinds of routes in turn; bitwise repeats."""
    for bits in (2, 3):
        for count in rows:
            ids = _kind(designs, bits, count)
            expected = designs.problem(next(iter(designs.all)), bits, ids).expected()
            for name in designs.all:
                if name.endswith(("null-decode", "watermark")):
                    continue
                problem = designs.problem(name, bits, ids)
                first, second = problem.outputs(), problem.outputs()
                declined = problem.launch(first) or problem.launch(second)
                error = compare.reading(first, expected).relative_error
                same = bool(torch.equal(first[0], second[0]))
                yield {"design": name, "bits": bits, "rows": count, "error": error, "same": same, "declined": declined}


def _kind(designs: Designs, bits: int, rows: int) -> _PROBLEM:
    x, ids, weights = designs.inputs(bits, rows)[0]
    kind = ROUTES[rows % len(ROUTES)]
    if kind == "hot":
        ids = ids[:1].expand_as(ids).contiguous()
    elif kind == "duplicates":
        ids[:, -1] = ids[:, 0]
    elif kind == "negative":
        ids[:, ::2] = -1
    return x, ids, weights


def speed(
    designs: Designs, library: Path, routes: Path, *, rows: Sequence[int], replays: int, skip: set[str]
) -> Iterator[dict[str, Any]]:
    """Median and 95th percentile, in µs a launch, of every design and of the incumbent's kernels."""
    module, timer = incumbents.load(library), Timer()
    for bits in (2, 3):
        for count in rows:
            uniform = designs.inputs(bits, count)
            ids = recorded(routes, count, len(uniform), uniform[0][1].device)
            mini = [(x, chosen, weights) for (x, _, weights), chosen in zip(uniform, ids, strict=True)]
            for kind, inputs in (("uniform", uniform), ("mini", mini)):
                calls: dict[str, list[Any]] = {}
                for name in designs.all:
                    if name in skip or name.endswith("clocks"):
                        continue
                    problems = [designs.problem(name, bits, one) for one in inputs]
                    calls[name] = [_call(problem) for problem in problems]
                theirs = [designs.problem(next(iter(designs.all)), bits, one).incumbents(module) for one in inputs]
                calls |= {name: [one[name] for one in theirs] for name in theirs[0]}
                times = timer.alternate(calls, cold=replays, warm=2)
                unique = [int(ids.unique().numel()) for _, ids, _ in inputs]
                yield {"bits": bits, "rows": count, "routes": kind, "experts": statistics.mean(unique)} | {
                    "us": {name: _figures(each.cold_ns) for name, each in times.items()}
                }


def _call(problem: RoutedProblem) -> Any:
    out = problem.outputs()

    def call() -> None:
        problem.launch(out)

    return call


def _figures(nanoseconds: Sequence[int]) -> list[float]:
    ordered = sorted(nanoseconds)
    return [round(statistics.median(ordered) / 1e3, 2), round(ordered[int(0.95 * (len(ordered) - 1))] / 1e3, 2)]


def phases(designs: Designs, rows: Sequence[int]) -> Iterator[dict[str, Any]]:
    """Cycles since a block's start at each mark, mean and largest over the blocks, for builds with clocks."""
    for name, workload in designs.all.items():
        if not name.endswith("clocks"):
            continue
        address = _clocks(workload)
        cells = torch.as_tensor(_Memory(address), device="cuda:0")
        for count in rows:
            x = designs.inputs(2, count)
            for one in x[:3]:  # the last one counts
                cells.zero_()
                problem = designs.problem(name, 2, one)
                problem.launch(problem.outputs())
                torch.cuda.synchronize()
            table = cells.cpu()
            used = table[table[:, 0] != 0]
            marks = {}
            for mark, words in MARKS.items():
                reached = used[used[:, mark] != 0]
                if len(reached):
                    since = (reached[:, mark] - reached[:, 0]).double()
                    marks[words] = [int(since.mean()), int(since.max()), len(reached)]
            yield {"design": name, "rows": count, "blocks": len(used), "cycles": marks}


def _clocks(workload: RoutedWorkload) -> int:
    native = ctypes.CDLL(str(workload.library.native.path))
    native.carve_cuda_clocks.restype = ctypes.c_void_p
    return int(native.carve_cuda_clocks())


class _Memory:
    """The clocks as torch can see them."""

    def __init__(self, address: int) -> None:
        self.__cuda_array_interface__ = {"shape": _CLOCKS, "typestr": "<i8", "data": (address, False), "version": 3}


def main(arguments: Sequence[str] | None = None) -> int:
    """Everything into one JSON file, a table on standard output; 1 where a design is wrong."""
    parser = argparse.ArgumentParser(prog="python -P -m carve_kernels.desk.gpu.trials", description=__doc__)
    parser.add_argument("folder", type=Path, help="lib<design>.so of every design")
    parser.add_argument("--incumbent", type=Path, required=True)
    parser.add_argument("--routes", type=Path, default=Path(__file__).with_name("mini_routes.json"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32])
    parser.add_argument("--replays", type=int, default=20)
    parser.add_argument("--brief", action="store_true", help="parity at four row counts only")
    given = parser.parse_args(arguments)
    start, designs = time.monotonic(), Designs(given.folder, 1)
    answer: dict[str, Any] = {"describe": {name: one.describe for name, one in designs.all.items()}}
    _tell(f"{time.monotonic() - start:.0f} s: {len(designs.all)} designs loaded")
    every = (1, 4, 9, 17) if given.brief else range(1, MAX_ROWS + 1)
    answer["parity"] = list(parity(designs, list(every)))
    wrong = {
        one["design"] for one in answer["parity"] if one["declined"] or not one["same"] or not one["error"] < BOUND
    }
    for name in designs.all:
        mine = [one for one in answer["parity"] if one["design"] == name]
        if mine:
            worst = max(mine, key=lambda one: one["error"])
            _tell(
                f"{name:36} worst {worst['error']:.2e} at k{worst['bits']} m{worst['rows']} {'WRONG' * (name in wrong)}"
            )
    given.out.write_text(json.dumps(answer), encoding="utf-8")
    _tell(f"{time.monotonic() - start:.0f} s: parity done")
    answer["speed"] = []
    for case in speed(designs, given.incumbent, given.routes, rows=given.rows, replays=given.replays, skip=wrong):
        answer["speed"].append(case)
        _tell(_line(case))
        given.out.write_text(json.dumps(answer), encoding="utf-8")
    answer["phases"] = list(phases(designs, [1, 4, 16]))
    for phase in answer["phases"]:
        _tell(json.dumps(phase))
    answer["seconds"] = round(time.monotonic() - start)
    given.out.write_text(json.dumps(answer), encoding="utf-8")
    _tell(f"{answer['seconds']} s in all")
    return 1 if wrong else 0


def _line(case: Mapping[str, Any]) -> str:
    head = f"k{case['bits']} m{case['rows']:<2} {case['routes']:7} {case['experts']:5.1f} experts "
    return head + "  ".join(f"{name} {figures[0]:.1f}" for name, figures in case["us"].items())


def _tell(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
