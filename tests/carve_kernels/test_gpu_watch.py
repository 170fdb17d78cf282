"""What is timed computes: lazy kernels on the desk's own way of timing, with CUDA's streams and graphs on paper."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from carve_kernels.desk.gpu import incumbents, speed
from carve_kernels.desk.gpu.watch import Watch

ROWS, WIDTH = 2, 8
Out = Sequence[torch.Tensor]
Kernel = Callable[["Doubling", Out], None]


class Doubling:
    """Twice its input: a problem of the desk without a card."""

    rows, weights, bytes = ROWS, 16, 4

    def __init__(self, kernel: Kernel, counts: list[int]) -> None:
        self.kernel, self.counts = kernel, counts
        self.x = torch.randn(ROWS, WIDTH, dtype=torch.float64)

    def outputs(self) -> list[torch.Tensor]:
        return [torch.full((ROWS, WIDTH), torch.nan)]

    def expected(self) -> list[torch.Tensor]:
        return [2 * self.x]

    def launch(self, outputs: Out) -> str:
        def run() -> None:
            self.counts.append(1)
            self.kernel(self, outputs)

        _queue(run)
        return ""

    def renew(self, source: torch.Generator) -> None:
        self.x.copy_(torch.randn(self.x.shape, generator=source))

    def incumbents(self, module: ModuleType) -> Mapping[str, Callable[[], list[torch.Tensor]]]:
        out = self.outputs()

        def call() -> list[torch.Tensor]:
            _queue(lambda: honest(self, out))
            return out

        return {"theirs": call}


class Workload:
    def __init__(self, kernel: Kernel) -> None:
        self.kernel, self.counts = kernel, list[int]()

    def rotating(self, seed: int, bits: int, rows: int, routes: str = "uniform") -> list[Doubling]:
        return [Doubling(self.kernel, self.counts) for _ in range(4)]

    def counted(self) -> tuple[int, dict[int, int]]:
        return len(self.counts), {}


def honest(problem: Doubling, outputs: Out) -> None:
    outputs[0].copy_(2 * problem.x)


def remembers_by_address() -> Kernel:
    known: dict[int, torch.Tensor] = {}

    def kernel(problem: Doubling, outputs: Out) -> None:
        honest(problem, outputs) if problem.x.data_ptr() not in known else outputs[0].copy_(known[problem.x.data_ptr()])
        known.setdefault(problem.x.data_ptr(), outputs[0].clone())

    return kernel


def writes_every_second_time() -> Kernel:
    calls = iter(range(10**9))

    def kernel(problem: Doubling, outputs: Out) -> None:
        if next(calls) % 2 == 0 or not bool(outputs[0].any()):
            honest(problem, outputs)

    return kernel


_CAPTURED: list[list[Callable[[], None]]] = []


def _queue(call: Callable[[], None]) -> None:
    if _CAPTURED:
        _CAPTURED[-1].append(call)
    else:
        call()


class Graph:
    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []

    def replay(self) -> None:
        for call in self.calls:
            call()


@contextmanager
def capture(graph: Graph, stream: Any = None) -> Iterator[None]:
    _CAPTURED.append(graph.calls)
    yield
    _CAPTURED.pop()


@pytest.fixture
def paper(monkeypatch: pytest.MonkeyPatch) -> None:
    quiet = SimpleNamespace(synchronize=lambda: None)
    event = SimpleNamespace(record=lambda stream: None, synchronize=lambda: None, elapsed_time=lambda end: 1.0)
    for name, stand_in in (
        ("Stream", lambda: quiet),
        ("stream", lambda stream: nullcontext()),
        ("CUDAGraph", Graph),
        ("graph", capture),
        ("Event", lambda enable_timing: event),
    ):
        monkeypatch.setattr(torch.cuda, name, stand_in)
    monkeypatch.setattr(incumbents, "load", lambda path: ModuleType("incumbent"))


def run(kernel: Kernel) -> dict[str, Any]:
    (case,) = speed.run(Workload(kernel), Path("theirs.so"), 7, bits=[2], rows=[ROWS], cold=24, warm=6)  # type: ignore[arg-type]  # of a workload only what timing needs
    return case


@pytest.mark.usefixtures("paper")
def test_an_honest_kernel_is_right_and_every_launch_is_counted() -> None:
    case = run(honest)
    assert float(case["kernels"][0]["relative_error"]) < 1e-6
    assert case["counted"] == case["launches"]


@pytest.mark.usefixtures("paper")
def test_a_kernel_that_looks_at_its_output_has_to_compute_every_time() -> None:
    """It is right, because each replay starts from NaN: there is nothing left to be lazy with."""
    computed: list[int] = []

    def kernel(problem: Doubling, outputs: Out) -> None:
        if not bool(outputs[0].isfinite().all()) or not bool(outputs[0].any()):
            computed.append(1)
            honest(problem, outputs)

    case = run(kernel)
    assert float(case["kernels"][0]["relative_error"]) < 1e-6
    assert len(computed) >= case["launches"] - 4 * 2  # but for direct calls into outputs that were just written


@pytest.mark.usefixtures("paper")
@pytest.mark.parametrize("kernel", [remembers_by_address, writes_every_second_time])
def test_a_lazy_kernel_is_wrong(kernel: Callable[[], Kernel]) -> None:
    assert float(run(kernel())["kernels"][0]["relative_error"]) > 0.1


def test_an_output_that_nobody_wrote_is_seen_at_once() -> None:
    problems = [Doubling(honest, []) for _ in range(3)]
    outputs = [problem.outputs() for problem in problems]
    watch = Watch("candidate", problems, outputs, 1)  # type: ignore[arg-type]  # of a problem only what it needs
    watch.before()
    for problem, out in zip(problems[:-1], outputs, strict=False):
        honest(problem, out)
    watch.after("theirs", "cold")
    assert watch.worst == 0
    watch.after("candidate", "cold")
    assert watch.worst == 1
