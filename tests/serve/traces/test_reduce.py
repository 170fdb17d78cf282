"""Traces as torch's profiler writes them, reduced: whole steps alone, ranks by themselves, memory in bounds."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.errors import EvidenceError
from runner.model.engine_measure import LaunchesMeasure
from runner.model.evidence import Evidence
from serve.instruments import launches
from serve.traces import json_stream
from serve.traces.json_stream import Reader, members
from serve.traces.reduce import main, reduce_trace
from tests.instruments.build import counters, evidence, window

DECODE = "execute_context_0(0)_generation_4(4)"
K2, K3, NCCL = "lna2_kernel<2>", "lna2_kernel<3>", "ncclDevKernel_AllReduce"


class Device:
    """A made-up device clock in microseconds, with the events of one trace."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = [{"ph": "M", "name": "process_name", "args": {}}]
        self.now = 1000.5

    def event(self, category: str, name: str, took: float, **arguments: Any) -> None:
        self.events.append(
            {"ph": "X", "cat": category, "name": name, "ts": self.now, "dur": took, "pid": 0, "args": arguments}
        )

    def kernel(self, name: str, took: float = 10.0, stream: int = 7, graph: int = 3) -> None:
        self.event("kernel", name, took, stream=stream, **({"graph node id": graph} if graph else {}))
        self.now += took + 1.0

    def step(self, annotation: str = DECODE, k2: int = 43, k3: int = 3) -> None:
        """Both annotations of one step, and its kernels."""
        for category in ("user_annotation", "gpu_user_annotation"):
            self.event(category, annotation, 100.0)
        for _ in range(k2):
            self.kernel(K2)
        for _ in range(k3):
            self.kernel(K3)
        self.kernel(NCCL, 50.0)

    def written(self, path: Path, rank: int = 1, ranks: int = 8) -> Path:
        whole = {
            "schemaVersion": 1,
            "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": ranks},
            "traceEvents": self.events,
            "traceName": "x",
        }
        text = json.dumps(whole, indent=1).encode()
        path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
        return path


def steps(device: Device, count: int, k2: int = 43, k3: int = 3) -> None:
    for _ in range(count):
        device.step(k2=k2, k3=k3)


def test_the_campaigns_counts_make_24_steps(tmp_path: Path) -> None:
    device = Device()
    device.step("execute_context_1(12269)_generation_0(0)", k2=43)
    steps(device, 25)
    device.step("execute_context_1(8)_generation_3(3)")
    steps(device, 3)
    trace = reduce_trace(device.written(tmp_path / "rank1.pt.trace.json.gz"))
    assert {row.name: row.launches for row in trace.kernels} == {K2: 1032, K3: 72, NCCL: 24}
    assert (trace.rank, trace.ranks, len(trace.steps)) == (1, 8, 24)
    assert trace.rows == (4,) * 24
    assert all((step.launches, step.work_ns, step.collective_ns) == (47, 460_000, 50_000) for step in trace.steps)
    assert trace.window_ns == 24 * (46 * 11 + 51) * 1000
    assert trace.busy_ns == 24 * (46 * 10 + 50) * 1000
    assert all(row.replayed == row.launches and row.streams == (7,) for row in trace.kernels)
    of = window("launches", arguments={"layer_kernels": ["lna2_kernel*"], "groups": {"routed": ["lna2_*"]}})
    facts = {"traces": [trace.model_copy(update={"rank": 0, "ranks": 1}).model_dump_json()]}
    own: Evidence = evidence(of, facts=facts, counters_before=(counters(0),), counters_after=(counters(30),))
    measure = launches.reduce([own], of).measure
    assert isinstance(measure, LaunchesMeasure)
    assert [(rank.steps, rank.annotated) for rank in measure.ranks] == [(24, 24)]


def test_captures_streams_and_launches_beside_the_graph_are_told(tmp_path: Path) -> None:
    device = Device()
    device.event("cuda_runtime", "cudaStreamBeginCapture_v10000", 1.0)
    steps(device, 3, k2=1, k3=0)
    device.now -= 200
    device.kernel(K2, stream=9, graph=0)
    trace = reduce_trace(device.written(tmp_path / "a.json"))
    assert trace.captures == 1
    (row,) = (row for row in trace.kernels if row.name == K2)
    assert row.streams[-1] in (7, 9)
    assert row.replayed <= row.launches


@pytest.mark.parametrize(
    ("call", "replayed"),
    [("cudaGraphLaunch", 4), ("cuGraphLaunch", 4), ("cudaLaunchKernel", 0), ("cuLaunchKernelEx", 0), ("", 0)],
)
def test_a_trace_without_graph_nodes_is_read_by_its_calls(tmp_path: Path, call: str, replayed: int) -> None:
    """torch 2.11 names no node of a graph; its launches bear the correlation of the one call that replayed them."""
    device = Device()
    for number in range(3):
        device.event("gpu_user_annotation", DECODE, 100.0)
        for place in range(2):
            shared = 40 + number if "Graph" in call else 40 + 2 * number + place
            device.event("kernel", K2, 10.0, stream=7, **({"correlation": shared} if call else {}))
            device.now += 11
            if call and (place == 0 or "Graph" not in call):
                # The host's events follow the device's in the file.
                device.event("cuda_runtime", call, 3.0, correlation=shared)
    (row,) = reduce_trace(device.written(tmp_path / "a.json")).kernels
    assert (row.launches, row.replayed) == (4, replayed)


def test_a_launch_between_replays_is_told(tmp_path: Path) -> None:
    device = Device()
    for _ in range(3):
        device.event("gpu_user_annotation", DECODE, 100.0)
        device.event("cuda_runtime", "cudaGraphLaunch_v10000", 3.0, correlation=5)
        device.event("kernel", K2, 10.0, stream=7, correlation=5)
        device.event("kernel", K2, 10.0, stream=7, correlation=6)
        device.event("cuda_runtime", "cudaGraphLaunch", 3.0)
        device.event("kernel", K2, 10.0, stream=7)
        device.now += 40
    (row,) = reduce_trace(device.written(tmp_path / "a.json")).kernels
    assert (row.launches, row.replayed) == (6, 2)


def test_overlapping_kernels_are_busy_once(tmp_path: Path) -> None:
    device = Device()
    device.step(k2=0, k3=0)
    device.event("kernel", "aside", 40.0, stream=9)
    device.kernel("own", 10.0)
    device.step(k2=0, k3=0)
    trace = reduce_trace(device.written(tmp_path / "a.json"))
    assert trace.busy_ns == (50 + 11) * 1000
    assert {row.name: row.streams for row in trace.kernels}["aside"] == (9,)


def test_a_trace_that_shows_no_decode_is_an_error(tmp_path: Path) -> None:
    device = Device()
    device.step("execute_context_1(64)_generation_0(0)")
    device.step()
    with pytest.raises(EvidenceError, match="shows no decode steps"):
        reduce_trace(device.written(tmp_path / "a.json"))


def test_a_torn_trace_is_an_error(tmp_path: Path) -> None:
    device = Device()
    steps(device, 3)
    whole = device.written(tmp_path / "a.json").read_bytes()
    (tmp_path / "b.json").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(EvidenceError, match="no whole JSON object"):
        reduce_trace(tmp_path / "b.json")
    (tmp_path / "c.json.gz").write_bytes(gzip.compress(whole)[:-20])
    with pytest.raises(EvidenceError, match="cannot be read"):
        reduce_trace(tmp_path / "c.json.gz")


def test_a_trace_of_one_process_is_known_by_its_name(tmp_path: Path) -> None:
    device = Device()
    steps(device, 3)
    alone = json.dumps({"traceEvents": device.events})
    (tmp_path / "dp0_rank3.pt.trace.json").write_text(alone)
    assert reduce_trace(tmp_path / "dp0_rank3.pt.trace.json").rank == 3
    (tmp_path / "worker.json").write_text(alone)
    with pytest.raises(EvidenceError, match="which rank"):
        reduce_trace(tmp_path / "worker.json")


def test_long_names_are_shortened_and_stay_different(tmp_path: Path) -> None:
    device = Device()
    device.step()
    device.kernel("k" * 1000)
    device.kernel("k" * 1001)
    device.step()
    names = [row.name for row in reduce_trace(device.written(tmp_path / "a.json")).kernels if row.name.startswith("kk")]
    assert len(names) == 2
    assert all(len(name) < 300 for name in names)


def test_the_job_answers_for_every_trace(tmp_path: Path) -> None:
    device = Device()
    steps(device, 3)
    paths = [str(device.written(tmp_path / f"{rank}.json", rank)) for rank in (0, 1)]
    (tmp_path / "asked").write_text(json.dumps({"traces": paths}))
    main(tmp_path / "asked", tmp_path / "answered")
    answered = json.loads((tmp_path / "answered").read_text())
    assert [json.loads(one)["rank"] for one in answered] == [0, 1]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


@given(before=st.dictionaries(st.text(), JSON, max_size=3), items=st.lists(JSON), chunk=st.integers(1, 40))
def test_any_object_is_read_in_pieces_as_it_is_in_one(before: dict[str, Any], items: list[Any], chunk: int) -> None:
    whole = {f"a{name}": value for name, value in before.items()} | {"events": items, "z": 1}
    text = json.dumps(whole, indent=1)
    patched = pytest.MonkeyPatch()
    with patched.context() as patch:
        patch.setattr(json_stream, "CHUNK", chunk)
        found = list(members(Reader(io.StringIO(text), "x"), "events"))
    expected = [pair for name, value in whole.items() for pair in _pairs(name, value)]
    assert found == expected


def _pairs(name: str, value: Any) -> list[tuple[str, Any]]:
    return [(name, item) for item in value] if name == "events" else [(name, value)]


@pytest.mark.parametrize("text", ["", "[1]", "{", '{"a": 1', '{"a": 1} x', '{"a" 1}', '{"events": [1', '{"events": 3}'])
def test_what_is_no_whole_object_is_an_error(text: str) -> None:
    with pytest.raises(EvidenceError, match="no whole JSON object"):
        list(members(Reader(io.StringIO(text), "x"), "events"))


def test_a_value_beyond_all_bounds_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_stream, "CHUNK", 10)
    monkeypatch.setattr(json_stream, "LARGEST", 100)
    with pytest.raises(EvidenceError, match="at most 100"):
        list(members(Reader(io.StringIO('{"a": "' + "x" * 1000 + '"}'), "x"), "events"))
