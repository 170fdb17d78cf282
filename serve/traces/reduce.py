"""Reduce torch profiler traces: ``python -P -m serve.traces.reduce REQUEST.json ANSWER.json``, a job of its own.

A trace of some seconds is hundreds of megabytes of JSON. It is read once, in pieces; of each kernel three numbers are
kept. What is counted is what ran on the device between the engine's annotations there. The annotations of the same
steps on the host are not looked at: counting both made 46 steps of 24 (FL-51).
"""

from __future__ import annotations

import gzip
import io
import json
import re
import sys
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runner.digest import sha256_bytes, sha256_file
from runner.errors import EvidenceError
from runner.model.trace import COLLECTIVE, KernelRow, RankTrace, StepRow
from serve.traces.json_stream import Reader, members

STEP = re.compile(r"execute_context_(\d+)\((\d+)\)_generation_(\d+)\((\d+)\)")
"""The engine's annotation of one step: requests and tokens of prefill, requests and tokens of decode."""
_CAPTURE = ("cudaStreamBeginCapture", "hipStreamBeginCapture")
_REPLAY = ("cudaGraphLaunch", "cuGraphLaunch", "hipGraphLaunch")
"""Calls that replay a graph: every launch of the graph bears their correlation."""
_LONGEST_NAME = 240
_MOST_KERNELS = 1 << 25
"""Launches that one trace may hold: half a gigabyte of numbers."""
_TS = 1000
"""A trace counts microseconds."""


@dataclass
class _Trace:
    """What one trace held."""

    rank: int | None = None
    ranks: int = 0
    names: dict[str, int] = field(default_factory=dict)
    kernel: array[int] = field(default_factory=lambda: array("L"))
    """Number of the name, of each launch."""
    node: array[int] = field(default_factory=lambda: array("b"))
    """1 where the trace itself names the launch's node of a graph, which older profilers (torch 2.11) leave out."""
    correlation: array[int] = field(default_factory=lambda: array("q"))
    """Number of the host's call that made the launch, 0 for an unknown one."""
    replays: set[int] = field(default_factory=set)
    """Numbers of the calls that replayed a graph."""
    stream: array[int] = field(default_factory=lambda: array("q"))
    begin: array[int] = field(default_factory=lambda: array("q"))
    took: array[int] = field(default_factory=lambda: array("q"))
    steps: list[tuple[int, int, int]] = field(default_factory=list)
    """(start, prefill tokens, decode tokens) of each annotated step on the device."""
    captures: int = 0

    def replayed(self, at: int) -> bool:
        """Whether a graph made this launch."""
        return bool(self.node[at]) or self.correlation[at] in self.replays


def reduce_trace(path: Path) -> RankTrace:
    """One trace, gzip or plain. Raises EvidenceError where it is torn, has no rank, or shows no decode on a device."""
    trace = _Trace()
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rb") as raw, io.TextIOWrapper(raw, encoding="utf-8") as text:
            for name, value in members(Reader(text, str(path)), "traceEvents"):
                if name == "traceEvents":
                    _event(trace, value, path)
                elif name == "distributedInfo" and isinstance(value, dict):
                    trace.rank, trace.ranks = int(value.get("rank", 0)), int(value.get("world_size", 1))
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise EvidenceError("a trace cannot be read", where=str(path), found=str(error)) from error
    rank = trace.rank if trace.rank is not None else _rank_of(path)
    begin, end, steps = _decode_window(trace, path)
    rows, kernels, busy = _inside(trace, begin, end, [at for at, _, _ in steps])
    return RankTrace(
        rank=rank,
        ranks=trace.ranks or 1,
        digest=sha256_file(path),
        size=path.stat().st_size,
        window_ns=end - begin,
        busy_ns=busy,
        kernels=kernels,
        steps=rows,
        rows=tuple(tokens for _, _, tokens in steps),
        captures=trace.captures,
    )


def _rank_of(path: Path) -> int:
    """The rank by the file's name, for a trace of one process that says nothing itself. Raises EvidenceError."""
    found = re.search(r"rank[-_]?(\d+)", path.name)
    if found is None:
        raise EvidenceError(
            "a trace does not say which rank wrote it",
            where=str(path),
            expected="distributedInfo.rank, or rankN in the file's name",
        )
    return int(found[1])


def _event(trace: _Trace, event: Any, path: Path) -> None:
    if not isinstance(event, dict) or event.get("ph") not in ("X", "B"):
        return
    category, name = event.get("cat"), str(event.get("name"))
    if category in ("kernel", "gpu_memcpy", "gpu_memset"):
        _launch(trace, event, name, path)
    elif category == "gpu_user_annotation":
        if found := STEP.fullmatch(name):
            trace.steps.append((_ns(event["ts"]), int(found[2]), int(found[4])))
    elif category in ("cuda_runtime", "cuda_driver"):
        trace.captures += name.startswith(_CAPTURE)
        if name.startswith(_REPLAY) and (number := _correlation(event)):
            trace.replays.add(number)


def _launch(trace: _Trace, event: dict[str, Any], name: str, path: Path) -> None:
    if len(trace.kernel) == _MOST_KERNELS:
        raise EvidenceError("a trace holds too many launches", where=str(path), expected=f"at most {_MOST_KERNELS}")
    arguments = event.get("args") or {}
    trace.kernel.append(trace.names.setdefault(_short(name), len(trace.names)))
    trace.stream.append(int(arguments.get("stream", 0)))
    trace.node.append(1 if arguments.get("graph node id") else 0)
    trace.correlation.append(_correlation(event))
    trace.begin.append(_ns(event["ts"]))
    trace.took.append(_ns(event.get("dur", 0)))


def _correlation(event: dict[str, Any]) -> int:
    return int((event.get("args") or {}).get("correlation", 0))


def _ns(microseconds: Any) -> int:
    return round(float(microseconds) * _TS)


def _short(name: str) -> str:
    """A name that a person can read; a longer one keeps its beginning and a digest of the whole."""
    return name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}~{sha256_bytes(name.encode())[:8]}"


def _decode_window(trace: _Trace, path: Path) -> tuple[int, int, list[tuple[int, int, int]]]:
    """The longest row of steps without prefill: its first start, its last start, and the steps between them."""
    rows: list[list[tuple[int, int, int]]] = [[]]
    for step in sorted(trace.steps):
        if step[1]:
            rows.append([])
        else:
            rows[-1].append(step)
    longest = max(rows, key=len)
    if len(longest) < 2:
        raise EvidenceError(
            "a trace shows no decode steps",
            where=str(path),
            expected="annotations execute_context_0(0)_generation_N(M) on the device, two or more in a row",
            found=f"{len(trace.steps)} annotated steps, {len(trace.kernel)} launches",
            next_step="profile while a request decodes, on a device that the profiler sees",
        )
    return longest[0][0], longest[-1][0], longest[:-1]


def _inside(
    trace: _Trace, begin: int, end: int, starts: Sequence[int]
) -> tuple[tuple[StepRow, ...], tuple[KernelRow, ...], int]:
    """Launches that began inside the window, by step and by kernel, and the time in which one ran."""
    launches, times = [0] * len(trace.names), [0] * len(trace.names)
    replayed = [0] * len(trace.names)
    streams: list[set[int]] = [set() for _ in trace.names]
    counts, work, waiting = [0] * len(starts), [0] * len(starts), [0] * len(starts)
    collective = [any(word in name.lower() for word in COLLECTIVE) for name in trace.names]
    busy, until = 0, begin
    for at in sorted(_between(trace, begin, end), key=trace.begin.__getitem__):
        number, took = trace.kernel[at], trace.took[at]
        launches[number] += 1
        times[number] += took
        replayed[number] += trace.replayed(at)
        streams[number].add(trace.stream[at])
        step = bisect_right(starts, trace.begin[at]) - 1
        counts[step] += 1
        (waiting if collective[number] else work)[step] += took
        done = min(trace.begin[at] + took, end)
        busy += max(0, done - max(until, trace.begin[at]))
        until = max(until, done)
    steps = tuple(
        StepRow(at_ns=start, launches=count, work_ns=worked, collective_ns=waited)
        for start, count, worked, waited in zip(starts, counts, work, waiting, strict=True)
    )
    kernels = tuple(
        KernelRow(
            name=name,
            launches=launches[number],
            replayed=replayed[number],
            time_ns=times[number],
            streams=tuple(sorted(streams[number])),
        )
        for name, number in sorted(trace.names.items())
        if launches[number]
    )
    return steps, kernels, busy


def _between(trace: _Trace, begin: int, end: int) -> Iterator[int]:
    return (at for at, start in enumerate(trace.begin) if begin <= start < end)


def main(asked: Path, answered: Path) -> None:
    """Read ``{"traces": [paths]}`` and write the list of their :class:`RankTrace` as JSON texts."""
    paths = json.loads(asked.read_text(encoding="utf-8"))["traces"]
    answered.write_text(json.dumps([reduce_trace(Path(path)).model_dump_json() for path in paths]), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
