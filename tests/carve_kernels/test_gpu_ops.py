"""The GPU's torch operators as far as they go without a card: whose scratch a launch gets, what is refused, tracing."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from carve_kernels.cuda import counters, dense, ops, scratch
from carve_kernels.exl3.codebook import Codebook
from torch._subclasses.fake_tensor import FakeTensorMode

from runner.errors import InputError, SeatError
from serve.adapters.gpu_desk import family_of

HIDDEN, INTERMEDIATE, TOPK, BITS = 256, 128, 2, 2


class Card:
    """Streams and captures as a test sets them, and a library that remembers what reached it."""

    path = "stand-in.so"

    def __init__(self) -> None:
        self.stream, self.capture, self.running, self.declined = 1, 0, False, ""
        self.calls: list[Any] = []

    def forward(self, call: Any) -> str:
        self.calls.append(call)
        return self.declined

    def scratch_bytes(self, *sizes: int) -> int:
        return 256


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Card:
    made = Card()
    event = SimpleNamespace(query=lambda: not made.running, record=lambda stream: None)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device=None: SimpleNamespace(cuda_stream=made.stream))
    monkeypatch.setattr(torch.cuda, "Event", lambda: event)
    for module in (ops, dense):
        monkeypatch.setattr(module, "capture_of", lambda stream: made.capture)
    monkeypatch.setattr(ops, "_LAYERS", [])
    monkeypatch.setattr(ops, "_GROUPS", [])
    monkeypatch.setattr(dense.Part, "__post_init__", lambda part: None)
    return made


def part(inputs: int, outputs: int) -> ops.Part:
    trellis = torch.zeros(inputs // 16, outputs // 16, 16 * BITS, dtype=torch.int16)
    return trellis, torch.ones(inputs, dtype=torch.half), torch.ones(outputs, dtype=torch.half)


def add_layer(card: Card, workspace: ops.Workspace) -> int:
    expert = (part(HIDDEN, INTERMEDIATE), part(HIDDEN, INTERMEDIATE), part(INTERMEDIATE, HIDDEN))
    library: Any = card
    return ops.add_layer(ops.Layer(library, [expert] * 2, Codebook.MCG, workspace))


def group(card: Card, *, one_stream: bool = False) -> dense.DenseGroup:
    library: Any = card
    parts = [dense.Part(*part(HIDDEN, width)) for width in (256, 128)]
    return dense.DenseGroup(library, parts, Codebook.MCG.abi, one_stream=one_stream)


def batch(**changes: Any) -> dict[str, Any]:
    """Arguments of one call of the routed experts."""
    given = {
        "x": torch.zeros(3, HIDDEN, dtype=torch.half),
        "ids": torch.zeros(3, TOPK, dtype=torch.int32),
        "weights": torch.zeros(3, TOPK),
    }
    return given | {"handle": 0, "layer": 0, "limit": 10.0, "out_dtype": torch.float32} | changes


@pytest.fixture
def routed(card: Card) -> Card:
    add_layer(card, ops.Workspace(torch.zeros(256, dtype=torch.uint8)))
    return card


@pytest.fixture
def grouped(card: Card) -> Card:
    ops.add_group(group(card))
    return card


def launch_routed() -> None:
    ops._routed_experts(**batch())


def launch_linears() -> None:
    ops._linears(torch.zeros(3, HIDDEN), handle=0, out_dtype=torch.float32)


@pytest.fixture(params=["routed", "grouped"])
def operator(request: pytest.FixtureRequest) -> tuple[Card, Any]:
    launch = launch_routed if request.param == "routed" else launch_linears
    return request.getfixturevalue(request.param), launch


def scratch_of(operator: tuple[Card, Any], stream: int, capture: int = 0) -> int:
    card, launch = operator
    card.stream, card.capture = stream, capture
    launch()
    return int(card.calls[-1].scratch)


def test_each_capture_has_scratch_of_its_own(operator: tuple[Card, Any]) -> None:
    eager = scratch_of(operator, 1)
    graphs = [scratch_of(operator, 1, capture) for capture in (7, 8)] + [scratch_of(operator, 2, 9)]
    assert len({eager, *graphs}) == 4
    assert [scratch_of(operator, 1, capture) for capture in (7, 8)] == graphs[:2]
    assert scratch_of(operator, 1) == eager


def test_two_streams_in_one_capture_share_nothing(operator: tuple[Card, Any]) -> None:
    scratch_of(operator, 1)
    assert scratch_of(operator, 1, 7) != scratch_of(operator, 2, 7)


def test_scratch_of_a_capture_is_made_before_it_where_something_ran() -> None:
    """What is made inside a capture comes out of the graph's memory, and is zeroed at each replay."""
    made: list[torch.Tensor] = []

    def make() -> torch.Tensor:
        made.append(torch.zeros(8, dtype=torch.uint8))
        return made[-1]

    stream: Any = SimpleNamespace(cuda_stream=1)
    captures = scratch.Captures(make)
    captures.prepare()
    captures.prepare()
    assert (captures.take(7, stream) is made[0], len(made)) == (True, 1)
    assert (captures.take(8, stream) is made[1], captures.take(7, stream) is made[0]) == (True, True)
    assert captures.nbytes() == 16


def test_a_second_stream_waits_for_the_first(routed: Card) -> None:
    """Launches of one stream follow each other; a graph is no hindrance, and meets none."""
    routed.running = True
    eager = scratch_of((routed, launch_routed), 1)
    assert scratch_of((routed, launch_routed), 1) == eager
    scratch_of((routed, launch_routed), 2, 7)
    with pytest.raises(InputError, match="another stream"):
        scratch_of((routed, launch_routed), 2)
    routed.running = False
    assert scratch_of((routed, launch_routed), 2) == eager


def test_linears_have_scratch_for_each_stream(grouped: Card) -> None:
    grouped.running = True
    assert scratch_of((grouped, launch_linears), 1) != scratch_of((grouped, launch_linears), 2)


def test_whoever_lets_one_run_at_a_time_shares_scratch(card: Card) -> None:
    """A seat has hundreds of groups and dozens of graphs."""
    ops.add_group(group(card, one_stream=True))
    places = {
        scratch_of((card, launch_linears), stream, capture) for stream, capture in ((1, 0), (2, 0), (2, 5), (3, 6))
    }
    assert len(places) == 1
    assert ops._GROUPS[0].scratch_bytes() == 256


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"x": torch.zeros(3, HIDDEN, dtype=torch.float64)}, "x does not fit"),
        ({"x": torch.zeros(HIDDEN, 3, dtype=torch.half).t()}, "x does not fit"),
        ({"x": torch.zeros(3, 999, dtype=torch.half)}, "x does not fit"),
        ({"x": torch.zeros(HIDDEN, dtype=torch.half)}, "tables of rows"),
        ({"ids": torch.zeros(6, dtype=torch.int32)}, "tables of rows"),
        ({"ids": torch.zeros(3, TOPK, dtype=torch.int64)}, "ids does not fit"),
        ({"ids": torch.zeros(3, TOPK, dtype=torch.int32, device="meta")}, "ids does not fit"),
        ({"weights": torch.zeros(3, TOPK, device="meta")}, "weights does not fit"),
        ({"weights": torch.zeros(3, 1)}, "weights does not fit"),
        ({"x": torch.zeros(3, HIDDEN, dtype=torch.half, device="meta")}, "x does not fit"),
        ({"out_dtype": torch.float64}, "no such output type"),
        ({"out_dtype": torch.int8}, "no such output type"),
        ({"handle": 1}, "no such layer"),
        ({"handle": -1}, "no such layer"),
        ({"layer": 256}, "no such place"),
        ({"layer": -1}, "no such place"),
    ],
)
def test_the_operator_and_its_fake_refuse_alike(routed: Card, changes: dict[str, Any], what: str) -> None:
    for function in (ops._routed_experts, ops._fake_routed_experts):
        with pytest.raises(InputError, match=what):
            function(**batch(**changes))
    assert not routed.calls


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"x": torch.zeros(3, HIDDEN, dtype=torch.float64)}, "x does not fit"),
        ({"x": torch.zeros(3, 384)}, "x does not fit"),
        ({"x": torch.zeros(HIDDEN)}, "no table of rows"),
        ({"x": torch.zeros(3, HIDDEN, device="meta")}, "x does not fit"),
        ({"out_dtype": torch.int32}, "no such output type"),
        ({"handle": 1}, "no such group"),
        ({"handle": -1}, "no such group"),
    ],
)
def test_linears_and_their_fake_refuse_alike(grouped: Card, changes: dict[str, Any], what: str) -> None:
    given: dict[str, Any] = {"x": torch.zeros(3, HIDDEN), "handle": 0, "out_dtype": torch.float32} | changes
    for function in (ops._linears, ops._fake_linears):
        with pytest.raises(InputError, match=what):
            function(**given)
    assert not grouped.calls


def test_a_decline_is_an_error(operator: tuple[Card, Any]) -> None:
    operator[0].declined = "shape"
    with pytest.raises(InputError, match="variant declined"):
        operator[1]()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_both_operators_are_traced(card: Card, dtype: torch.dtype) -> None:
    add_layer(card, ops.Workspace(torch.zeros(256, dtype=torch.uint8)))
    ops.add_group(group(card))
    with FakeTensorMode() as mode:
        given = {name: mode.from_tensor(one) if isinstance(one, torch.Tensor) else one for name, one in batch().items()}
        routed = torch.ops.carve_cuda.routed_experts(**given | {"out_dtype": dtype})
        outs = torch.ops.carve_cuda.linears(mode.from_tensor(torch.zeros(5, HIDDEN)), handle=0, out_dtype=dtype)
    assert (routed.shape, routed.dtype) == ((3, HIDDEN), dtype)
    assert [(tuple(out.shape), out.dtype) for out in outs] == [((5, 256), dtype), ((5, 128), dtype)]
    assert not card.calls


def test_what_reaches_the_library_is_the_call(card: Card) -> None:
    ops.add_group(group(card))
    x = torch.zeros(3, HIDDEN, dtype=torch.bfloat16)
    outs = ops._linears(x, handle=0, out_dtype=torch.float16)
    (call,) = card.calls
    assert (call.rows, call.in_features, call.parts, call.bits, call.x_type, call.out_type) == (
        3,
        HIDDEN,
        2,
        BITS,
        1,
        2,
    )
    assert call.x == x.data_ptr()
    assert [call.part[place].out for place in range(2)] == [out.data_ptr() for out in outs]


def test_a_capture_has_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    stream: Any = SimpleNamespace(cuda_stream=5)
    told = {"status": 1, "failed": 0}

    def info(stream: Any, status: Any, number: Any, *optional: Any) -> int:
        status._obj.value, number._obj.value = told["status"], 100 + stream.value
        return told["failed"]

    monkeypatch.setattr(ctypes, "CDLL", lambda name: SimpleNamespace(cudaStreamGetCaptureInfo=info))
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    assert scratch.capture_of(stream) == 0
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert scratch.capture_of(stream) == 105
    for change in ({"status": 2}, {"failed": 900}):
        told |= {"status": 1, "failed": 0} | change
        with pytest.raises(SeatError, match="no number"):
            scratch.capture_of(stream)


@pytest.mark.parametrize("queued", [True, False])
def test_counters_are_copied_beside_running_work(queued: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stream that counts is given nothing; at most it is waited for."""
    seen: list[str] = []

    class Stream:
        def __init__(self, device: Any) -> None:
            seen.append("own stream")

        def wait_stream(self, other: Any) -> None:
            seen.append(f"waits for {other}")

        def synchronize(self) -> None:
            seen.append("synchronised")

    empty = torch.empty

    def pageable(*sizes: Any, pin_memory: bool, dtype: torch.dtype) -> torch.Tensor:
        assert pin_memory
        return empty(*sizes, dtype=dtype)

    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device=None: "current")
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: torch.no_grad())
    monkeypatch.setattr(torch, "empty", pageable)
    tally = dense.Counters(torch.device("cpu"))
    tally.cells[0], tally.cells[1 + 4] = 3, 3
    assert tally.read(queued=queued) == (3, {4: 3})
    assert counters.copied(tally.cells, queued=queued).tolist() == tally.cells.tolist()
    once = ["own stream", *(["waits for current"] if queued else []), "synchronised"]
    assert seen == once * 2


@pytest.mark.parametrize(
    ("variant", "family"),
    [
        ("lna", "lna"),
        ("lna-watermark", "lna"),
        ("lna2", "routed"),
        ("lna2-paired", "routed"),
        ("dense-watermark", "dense"),
    ],
)
def test_the_desk_looks_for_the_kernel_that_runs(variant: str, family: str) -> None:
    assert family_of(variant) == family
