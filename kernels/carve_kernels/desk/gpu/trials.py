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
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from carve_kernels.cuda import ops
from carve_kernels.cuda.library import MAX_ROWS, Library
from carve_kernels.desk.gpu import compare, incumbents
from carve_kernels.desk.gpu.recorded import recorded
from carve_kernels.desk.gpu.routed import LIMIT, SERVED, RoutedProblem, RoutedWorkload
from carve_kernels.desk.gpu.timing import Timer
from carve_kernels.desk.layers import ROUTES

BOUND = 2e-3
CHECK_SECONDS = 150
UNCHECKED = ("null-decode", "watermark")
"""Endings of builds that are wrong on purpose."""
MARKS = {
    1: "routes",
    2: "copies asked for, or scales there",
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
    """Libraries by the names of their designs, all on the same layers."""

    def __init__(self, files: Sequence[Path], seed: int = 0) -> None:
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


def parity(designs: Designs, rows: Sequence[int]) -> Iterator[dict[str, Any]]:
    """Worst row of a design at every row count, with all kinds of routes in turn; bitwise repeats."""
    (name,) = designs.all
    for bits in (2, 3):
        for count in rows:
            problem = designs.problem(name, bits, _kind(designs, bits, count))
            first, second = problem.outputs(), problem.outputs()
            declined = problem.launch(first) or problem.launch(second)
            error = 1.0 if declined else compare.reading(first, problem.expected()).relative_error
            same = bool(torch.equal(first[0], second[0]))
            yield {"bits": bits, "rows": count, "error": error, "same": same, "declined": declined}


def operator(file: Path) -> dict[str, Any]:
    """The torch operator for real: called, captured in a graph, replayed with other inputs; the library's own count."""
    designs, device = Designs([file]), torch.device("cuda:0")
    (name,), experts = designs.all, designs.layers[2]
    library = Library(file)

    def part(number: int, expert: int) -> ops.Part:
        one = experts.layer.projections[number]
        return one.trellis[expert], one.suh[expert], one.svh[expert]

    parts = [(part(0, expert), part(1, expert), part(2, expert)) for expert in range(SERVED.experts)]
    sizes = {"hidden": SERVED.hidden, "intermediate": SERVED.intermediate, "topk": SERVED.topk}
    space = ops.workspace(library, device, experts=SERVED.experts, **sizes)
    handle = ops.add_layer(ops.Layer(library, parts, experts.book, space))
    sets = [designs.problem(name, 2, one) for one in designs.inputs(2, 4)[:3]]
    held = sets[0].copy()

    def call() -> torch.Tensor:
        told = {"handle": handle, "layer": 3, "limit": LIMIT, "out_dtype": torch.float32}
        return ops.routed_experts(held.x, held.ids, held.route_weights, **told)

    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        call()
        stream.synchronize()
        with torch.cuda.graph(graph, stream=stream):
            out = call()
        errors = []
        for one in sets:
            held.take(one)
            graph.replay()
            stream.synchronize()
            errors.append(compare.reading([out], one.expected()).relative_error)
    told = [count for count in ops.read_counts(library, device) if count.layer == 3]
    return {"errors": errors, "launches": told[0].launches if told else 0, "expected_launches": 1 + len(sets)}


def check(file: Path, rows: Sequence[int]) -> dict[str, Any]:
    """A design alone in this process: what it says of itself, and its parity."""
    designs = Designs([file])
    (own,) = designs.all.values()
    return {"describe": dict(own.describe), "parity": list(parity(designs, rows))}


def checked(file: Path, rows: Sequence[int], seconds: int = CHECK_SECONDS) -> dict[str, Any]:
    """``check`` in a process of its own, so that a fault or a deadlock takes nothing along but ``seconds``."""
    argv = [sys.executable, "-P", "-m", "carve_kernels.desk.gpu.trials", "check", str(file), *map(str, rows)]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return {"failed": f"no answer within {seconds} s"}
    if done.returncode:
        return {"failed": done.stderr[-1500:]}
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def wrong(answer: Mapping[str, Any]) -> str:
    """Why a design is not timed; empty where nothing speaks against it."""
    if "failed" in answer:
        return str(answer["failed"])
    for one in answer["parity"]:
        if one["declined"] or not one["same"] or not one["error"] < BOUND:
            return json.dumps(one)
    return ""


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


def speed(designs: Designs, library: Path, *, rows: Sequence[int], replays: int) -> Iterator[dict[str, Any]]:
    """Median and 95th percentile, in µs a launch, of every design and of the incumbent's kernels."""
    module, timer = incumbents.load(library), Timer()
    for bits in (2, 3):
        for count in rows:
            uniform = designs.inputs(bits, count)
            ids = recorded(count, len(uniform), SERVED.experts, uniform[0][1].device)
            mini = [(x, chosen, weights) for (x, _, weights), chosen in zip(uniform, ids, strict=True)]
            for kind, inputs in (("uniform", uniform), ("mini", mini)):
                calls: dict[str, list[Any]] = {
                    name: [_call(designs.problem(name, bits, one)) for one in inputs]
                    for name in designs.all
                    if not name.endswith("clocks")
                }
                theirs = [designs.problem(next(iter(designs.all)), bits, one).incumbents(module) for one in inputs]
                calls |= {name: [one[name] for one in theirs] for name in theirs[0]}
                times = timer.alternate(calls, cold=replays, warm=2)
                loads = [designs.layers[bits].load(chosen) for _, chosen, _ in inputs]
                yield {
                    "bits": bits,
                    "rows": count,
                    "routes": kind,
                    "weights": statistics.mean(weights for weights, _ in loads),
                    "bytes": statistics.mean(amount for _, amount in loads),
                    "us": {name: _figures(each.cold_ns) for name, each in times.items()},
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
                    since = (reached[:, 0] - reached[:, mark]).double()
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


def compare_all(given: argparse.Namespace) -> int:
    """Everything into one JSON file, a table on standard output."""
    start, files = time.monotonic(), sorted(given.folder.glob("lib*.so"))
    rows = (1, 4, 9, 17) if given.brief else tuple(range(1, MAX_ROWS + 1))
    answer: dict[str, Any] = {"card": torch.cuda.get_device_name(0), "torch": str(torch.__version__)}

    def keep(line: str) -> None:
        given.out.write_text(json.dumps(answer), encoding="utf-8")
        sys.stdout.write(f"{time.monotonic() - start:4.0f} s  {line}\n")
        sys.stdout.flush()

    judged = [file for file in files if not file.stem.endswith(UNCHECKED)]
    with ThreadPoolExecutor(max_workers=4) as pool:
        answers = list(pool.map(lambda file: checked(file, rows, given.check_seconds), judged))
    answer["check"] = {file.stem.removeprefix("lib"): one for file, one in zip(judged, answers, strict=True)}
    refused = set()
    for file, one in zip(judged, answers, strict=True):
        reason = wrong(one)
        refused |= {file} if reason else set()
        worst = "" if "failed" in one else f"worst row {max(each['error'] for each in one['parity']):.1e}"
        clusters = {key: value for key, value in one.get("describe", {}).items() if key.startswith("clusters")}
        keep(f"{file.stem[3:]:34} {worst} {clusters or ''} {reason and 'WRONG: ' + reason}")
    designs = Designs([file for file in files if file not in refused])
    answer["speed"] = []
    for case in speed(designs, given.incumbent, rows=given.rows, replays=given.replays):
        answer["speed"].append(case)
        keep(_line(case))
    answer["phases"] = []
    for phase in phases(designs, (1, 4, 16)):
        answer["phases"].append(phase)
        keep(json.dumps(phase))
    keep("done")
    return 1 if refused else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """1 where a design is wrong."""
    parser = argparse.ArgumentParser(prog="python -P -m carve_kernels.desk.gpu.trials", description=__doc__)
    jobs = parser.add_subparsers(dest="job", required=True)
    all_of_them = jobs.add_parser("compare", help="every lib<design>.so of a folder")
    all_of_them.add_argument("folder", type=Path)
    all_of_them.add_argument("--incumbent", type=Path, required=True)
    all_of_them.add_argument("--out", type=Path, required=True)
    all_of_them.add_argument("--rows", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32])
    all_of_them.add_argument("--replays", type=int, default=20)
    all_of_them.add_argument("--brief", action="store_true", help="parity at four row counts only")
    all_of_them.add_argument("--check-seconds", type=int, default=CHECK_SECONDS, help="for the parity of one design")
    one = jobs.add_parser("check", help="parity of one library")
    one.add_argument("file", type=Path)
    one.add_argument("rows", type=int, nargs="*", default=[1])
    once = jobs.add_parser("once", help="five launches at one row count, for a profiler")
    once.add_argument("file", type=Path)
    once.add_argument("count", type=int)
    jobs.add_parser("operator", help="the torch operator in a graph").add_argument("file", type=Path)
    given = parser.parse_args(arguments)
    if given.job == "compare":
        return compare_all(given)
    if given.job == "once":
        designs = Designs([given.file])
        for inputs in designs.inputs(2, given.count)[:5]:
            problem = designs.problem(next(iter(designs.all)), 2, inputs)
            problem.launch(problem.outputs())
        torch.cuda.synchronize()
        return 0
    told = check(given.file, given.rows) if given.job == "check" else operator(given.file)
    sys.stdout.write(json.dumps(told) + "\n")
    return 0


def _line(case: Mapping[str, Any]) -> str:
    head = f"k{case['bits']} m{case['rows']:<2} {case['routes']:7} {case['weights'] / 3145728:5.1f} experts "
    return head + "  ".join(f"{name} {figures[0]:.1f}" for name, figures in case["us"].items())


if __name__ == "__main__":
    sys.exit(main())
