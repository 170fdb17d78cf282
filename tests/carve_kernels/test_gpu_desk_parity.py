"""The desk's parity job on the emulator, with the kernels' own sources; streams and graphs are stand-ins."""

from __future__ import annotations

import contextlib
import ctypes
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from carve_kernels.cuda.dense import Counters, DenseLibrary, Part
from carve_kernels.cuda.library import COUNTERS_BYTES, Library, MoeCall, counts
from carve_kernels.desk.gpu import decoded, emulated, fans, moe, parity, routed
from carve_kernels.desk.gpu.fans import FanWorkload
from carve_kernels.desk.gpu.parity import Fact
from carve_kernels.desk.gpu.real import real_layer
from carve_kernels.desk.gpu.routed import RoutedWorkload
from carve_kernels.desk.gpu.workload import Group
from carve_kernels.desk.layers import Shape
from carve_kernels.exl3.codebook import Codebook

from runner.model.desk_measure import ParityMeasure

GROUPS = ("served-k2-m3", "topk16-of-16-k2-m1", "topk2-of-1024-k3-m1", "bfloat16-k2-m9", "real-m1", "bfloat16-k6-m7")
CPU = torch.device("cpu")
TINY = Shape(hidden=256, intermediate=128, experts=8, topk=2)


class Stream:
    """Everything on the host is in order."""

    cuda_stream = 0

    def synchronize(self) -> None:
        """Nothing runs."""


class Graph:
    """The calls of a capture, made again at each replay."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], object]] = []

    def replay(self) -> None:
        """All of them, in order."""
        for call in self.calls:
            call()


@pytest.fixture(autouse=True)
def host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Host tensors in place of a card's, small layers, a capture that keeps what the library was asked."""
    graphs: list[Graph] = []

    @contextlib.contextmanager
    def capture(graph: Graph, stream: Stream) -> Iterator[None]:
        graphs.append(graph)
        yield
        graphs.pop()

    def kept(forward: Callable[..., str]) -> Callable[..., str]:
        def called(library: object, call: ctypes.Structure) -> str:
            if graphs:
                graphs[-1].calls.append(lambda: forward(library, call))
                return ""
            return forward(library, call)

        return called

    def counted(library: moe.MoeLibrary, device: torch.device) -> tuple[int, dict[int, int]]:
        layers = counts(ctypes.string_at(library.native.counters_address(), COUNTERS_BYTES))
        return sum(layer.launches for layer in layers), {}

    def aligned(*size: int, **kind: Any) -> torch.Tensor:
        if kind["dtype"] is not torch.uint8:
            return zeros(*size, **kind)
        held = zeros(size[0] + 128, **kind)
        return held[-held.data_ptr() % 128 :][: size[0]]

    zeros = torch.zeros

    monkeypatch.setattr(torch, "zeros", aligned)
    for name, stand_in in (("Stream", Stream), ("CUDAGraph", Graph), ("graph", capture)):
        monkeypatch.setattr(torch.cuda, name, stand_in)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device=None: Stream())
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device=None: None)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device=None: 0)
    monkeypatch.setattr(moe.Projection, "__post_init__", lambda part: None)
    monkeypatch.setattr(Part, "__post_init__", lambda part: None)
    monkeypatch.setattr(moe, "_contiguous", lambda tensors: None)
    monkeypatch.setattr(moe.MoeLibrary, "counted", counted)
    monkeypatch.setattr(Counters, "read", lambda own: (int(own.cells[0]), {}))
    monkeypatch.setattr(Library, "forward", kept(Library.forward))
    monkeypatch.setattr(DenseLibrary, "forward", kept(DenseLibrary.forward))
    small: tuple[tuple[Any, str, object], ...] = (
        (parity, "REPLAYS", 12),
        (parity, "STREAM_ROUNDS", 2),
        (decoded, "QUADS", 3),
        (routed, "SERVED", TINY),
        (routed, "SMALL", TINY),
        (routed, "ODD", TINY),
        (routed, "WIDE", TINY),
        (routed, "MOST_SLOTS", Shape(hidden=128, intermediate=128, experts=16, topk=16)),
        (routed, "MOST_EXPERTS", Shape(hidden=128, intermediate=128, experts=1024, topk=2)),
        (routed, "FORMATS", (((3, 3, 3), Codebook.MCG),)),
        (routed, "DECODED", (range(2, 4), (Codebook.MCG,))),
        (routed, "SMALL_ROUTES", ((1, "unique"), (9, "hot"))),
        (routed, "BRIEF_ROWS", (1, 9)),
    )
    for module, name, value in small:
        monkeypatch.setattr(module, name, value)


def faults(facts: Sequence[Fact]) -> list[str]:
    cases = ParityMeasure.model_validate({"cases": facts}).cases
    return [case.id for case in cases if float(case.relative_error) > 2e-3 or not (case.finite and case.repeat_equal)]


def experts(name: str) -> RoutedWorkload:
    return RoutedWorkload(emulated.build(name), CPU, "routed_experts")


@pytest.mark.parametrize("name", ["lna2", "lna2-paired"])
def test_the_routed_experts_answer_every_question(name: str) -> None:
    subject = experts(name)
    found = [parity._answer(f"{name}: {no}", yes == no) for name, (yes, no) in subject.questions(3).items()]
    assert faults(found) == []
    assert len(found) == 4


@pytest.mark.parametrize("subject", [lambda: experts("lna2-paired"), lambda: FanWorkload(emulated.build("dense"), CPU)])
def test_wrong_calls_are_refused_for_their_own_reasons(subject: Callable[[], RoutedWorkload | FanWorkload]) -> None:
    facts = parity._wrong_calls(subject())
    assert faults(facts) == []
    assert len(facts) > 50


def test_a_library_that_refuses_nothing_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = experts("lna2-paired")
    monkeypatch.setattr(Library, "forward", lambda library, call: "")
    facts = parity._wrong_calls(subject)
    assert len(faults(facts)) == len(facts) - 1


def test_a_library_that_refuses_everything_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = experts("lna2-paired")
    monkeypatch.setattr(Library, "forward", lambda library, call: "shape")
    assert "call-right-call: shape" in faults(parity._wrong_calls(subject))


def test_a_library_of_the_other_form_is_seen() -> None:
    subject = experts("lna2-paired")
    subject.paired = False
    found = subject.questions(3)
    assert found["operands"] == ("rounded sums", "pairs")
    assert all(wanted != answer for wanted, answer in found.values())


@pytest.mark.parametrize("name", ["lna2", "lna2-paired", "dense"])
def test_rows_that_are_not_finite_stay_alone(name: str) -> None:
    subject = FanWorkload(emulated.build("dense"), CPU) if name == "dense" else experts(name)
    assert faults([parity._not_finite(subject.small(1)[:2])]) == []


def test_infinity_that_a_clamp_swallows_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = experts("lna2-paired")
    forward = routed.RoutedProblem.launch

    def swallowed(problem: routed.RoutedProblem, outputs: Sequence[torch.Tensor]) -> str:
        declined = forward(problem, outputs)
        outputs[0].nan_to_num_(nan=0.0)
        return declined

    monkeypatch.setattr(routed.RoutedProblem, "launch", swallowed)
    assert len(faults([parity._not_finite(subject.small(1)[:2])])) == 1


def test_outputs_of_every_type_are_the_rounded_output(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = experts("lna2-paired")
    assert faults(parity._output_types(subject, subject.small(1)[:2])) == []
    forward = Library.forward

    def truncated(library: Library, call: MoeCall) -> str:
        call.limit = 0.5 if call.out_type else call.limit
        return forward(library, call)

    monkeypatch.setattr(Library, "forward", truncated)
    assert len(faults(parity._output_types(subject, subject.small(1)[:2]))) == 2


def test_poison_spares_the_control_words_alone() -> None:
    subject = experts("lna2-paired")
    for problem in subject.small(1)[:1]:
        problem.launch(problem.outputs())
    subject.poison_scratch()
    control = int(json.loads(json.dumps(subject.describe))["control_bytes"])
    assert control == emulated.CONTROL_BYTES
    for held in subject.library._scratch.values():
        assert bool((held[control:] == 0xFF).all()) and not bool((held[:control] == 0xFF).all())


@pytest.mark.parametrize("family", ["routed", "dense"])
def test_the_job_as_a_whole(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some groups, and all that one call cannot show; names of kernels and the other build need a device."""
    subject = experts("lna2-paired") if family == "routed" else FanWorkload(emulated.build("dense"), CPU)
    every = type(subject).parity

    def some(workload: Any, seed: int) -> Iterator[Group]:
        for group in every(workload, seed):
            if group.name in GROUPS:
                yield replace(group, problems=group.problems[:2])

    small = subject.small(5)[:1]
    monkeypatch.setattr(type(subject), "parity", some)
    monkeypatch.setattr(type(subject), "small", lambda workload, seed: small)
    monkeypatch.setattr(parity, "_wrong_calls", lambda workload: [])
    monkeypatch.setattr(parity, "_kernels", lambda workload, problems: parity._answer("kernel-names", True))
    monkeypatch.setattr(parity, "_watermark", lambda workload, seed: parity._answer("watermark-seen", True))
    monkeypatch.setattr(fans, "SERVED_INPUT", 256)
    monkeypatch.setattr(fans, "SERVED_WIDTHS", (128,))
    facts = parity.run(subject, subject, 5)
    assert faults(facts) == []
    if family == "routed":
        pairs = [float(str(fact["pair_error"])) for fact in facts if "pair_error" in fact]
        assert pairs and max(pairs) < 2e-3


def test_old_cases_keep_their_bytes() -> None:
    case = parity._answer("counted", True)
    (read,) = ParityMeasure.model_validate({"cases": [case]}).cases
    assert read.model_dump(mode="json") == case


def test_the_file_of_real_experts_is_here() -> None:
    layer, book = real_layer(CPU)
    assert (layer.hidden, layer.intermediate, layer.experts, book) == (256, 512, 6, Codebook.MCG)
