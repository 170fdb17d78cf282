"""Measures of a serving engine beside speed and quality: launches, ranks, speculation, memory, answers."""

from __future__ import annotations

from typing import Literal

from runner.model.base import DecimalText, Record, Slug


class GroupLaunches(Record):
    """The kernels of one group on one rank, inside the trace's decode window."""

    name: Slug
    """As the order names it; ``other`` for kernels of no group, ``collective`` for those that wait for other ranks."""
    launches: int
    replayed: int
    """Of these, launches that a CUDA graph replayed."""
    time_ns: int
    streams: tuple[int, ...] = ()


class RankLaunches(Record):
    """One rank's decode window."""

    rank: int
    steps: int
    """Greatest common divisor of the launches of every kernel that runs once a layer."""
    annotated: int
    """Steps by the engine's annotations: told, and decide nothing."""
    window_ns: int
    busy_ns: int
    """Time in which at least one kernel ran."""
    groups: tuple[GroupLaunches, ...]


class LaunchesMeasure(Record):
    """Launches and kernel time of decode steps, from the profiler traces of all ranks."""

    kind: Literal["launches"] = "launches"
    rows: int
    """Most scheduled tokens of a step inside the window."""
    ranks: tuple[RankLaunches, ...]


class RankSteps(Record):
    """Decode steps of one rank, in nanoseconds of device time."""

    rank: int
    steps: int
    work_p50_ns: int
    """Kernel time of a step without collectives: what the rank itself took. Collectives absorb waiting for others."""
    work_p95_ns: int
    collective_p50_ns: int
    step_p50_ns: int
    """Start to start; equal on all ranks that wait for each other."""
    step_p95_ns: int


class RankSkewMeasure(Record):
    """One run: decode steps of every rank."""

    kind: Literal["rank-skew"] = "rank-skew"
    ranks: tuple[RankSteps, ...]


class AcceptanceMeasure(Record):
    """Speculation in one window of one language, from ``/metrics`` at both ends."""

    kind: Literal["acceptance"] = "acceptance"
    language: str
    texts: int
    tokens: int
    """Generated, by ``usage``."""
    drafts: int
    """Steps that verified a draft; 0 in an engine without speculation."""
    draft_tokens: int
    accepted_tokens: int
    accepted_by_position: tuple[int, ...]


class BandText(Record):
    """One greedy text beside the same prompt's text in another engine or batch."""

    id: str
    language: str
    tokens: int
    """Positions compared."""
    common: int
    """Tokens before the first that differs; all of them where none does."""
    gap: DecimalText | None = None
    """At the first that differs: how much less likely than its likeliest the reference holds the other token, in nats.

    None where none differs, or where the reference's top logprobs do not name the other's token.
    """


class GreedyBandMeasure(Record):
    """Greedy texts against a reference window's."""

    kind: Literal["greedy-band"] = "greedy-band"
    reference_window: Slug
    texts: tuple[BandText, ...]


EngineMeasure = LaunchesMeasure | RankSkewMeasure | AcceptanceMeasure | GreedyBandMeasure
"""All of them; each is one kind of a sample's measure."""
