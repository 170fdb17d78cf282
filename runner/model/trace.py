"""One rank's profiler trace, reduced on the host that wrote it; the trace itself is not kept."""

from __future__ import annotations

from runner.model.base import Digest, Record

COLLECTIVE = ("nccl", "cross_device_reduce", "one_shot_all_reduce", "two_shot_all_reduce")
"""Words in the names of kernels that wait for other ranks: their time is no work of the rank."""


class KernelRow(Record):
    """All launches of one kernel inside the trace's decode window."""

    name: str
    launches: int
    replayed: int
    """Of these, launches that a CUDA graph replayed."""
    time_ns: int
    streams: tuple[int, ...]
    """Streams on which it ran, sorted."""


class StepRow(Record):
    """One decode step as the engine's own annotation marks it on the device."""

    at_ns: int
    """Start, on the trace's clock."""
    launches: int
    work_ns: int
    """Time of its kernels without collectives."""
    collective_ns: int


class RankTrace(Record):
    """What is left of one rank's trace.

    The decode window is the longest row of annotations that hold no prefill: from the start of its first to the start
    of its last, so that only whole steps are inside.
    """

    rank: int
    ranks: int
    """How many ranks the trace itself says there are."""
    digest: Digest
    """SHA-256 of the trace as the profiler wrote it."""
    size: int
    """Its bytes."""
    window_ns: int
    busy_ns: int
    """Time inside the window in which at least one kernel ran."""
    kernels: tuple[KernelRow, ...]
    steps: tuple[StepRow, ...]
    rows: tuple[int, ...]
    """Scheduled tokens of each of these steps, by the annotation."""
    captures: int
    """Graphs that were captured while the profiler ran."""
