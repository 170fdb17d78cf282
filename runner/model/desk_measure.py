"""Measures of the desk: kernels without an engine around them."""

from __future__ import annotations

from typing import Literal

from runner.model.base import DecimalText, Digest, Record, later


class ParityCase(Record):
    """One operator case against the reference, on fp32 output."""

    id: str
    rows: int
    bits: int
    relative_error: DecimalText
    """Worst row's ‖out − ref‖ / ‖ref‖."""
    norm_ratio: DecimalText
    """Worst row's ‖out‖ / ‖ref‖."""
    finite: bool
    repeat_equal: bool
    declined: str = ""
    pair_error: DecimalText | None = later(None)
    """The same error against weights that are the exact sums of their two halves, for kernels that multiply pairs."""


class ParityMeasure(Record):
    """Desk parity of a variant."""

    kind: Literal["parity"] = "parity"
    cases: tuple[ParityCase, ...]


class KernelTimes(Record):
    """One kernel on one case, replayed in turn with the others; replay i of one belongs to replay i of the others."""

    name: str
    relative_error: DecimalText
    """Worst row of its output against the reference, checked before it was timed."""
    cold_ns: tuple[int, ...]
    """Nanoseconds a call, one figure a replay; every call with its own weights, which the caches do not hold."""
    warm_ns: tuple[int, ...]
    """The same with one call again and again."""


class KernelSpeedCase(Record):
    """One K, row count and kind of routes."""

    id: str
    bits: int
    rows: int
    routes: Literal["recorded"] | None = later(None)
    """Rows go to the experts that the trained small pack chose; without this field to uniform random ones."""
    weights: int
    """Weights a call has to decode, mean over its inputs."""
    bytes: int
    """Trellis bytes a call has to read."""
    launches: int
    """How often the candidate was launched for this case."""
    counted: int
    """How often it says it ran, by its counter on the device."""
    kernels: tuple[KernelTimes, ...]
    """The candidate first."""


class KernelSpeedMeasure(Record):
    """The candidate against one version of the incumbent library, in one process."""

    kind: Literal["kernel-speed"] = "kernel-speed"
    version: str
    incumbent_digest: Digest
    """SHA-256 of the incumbent's compiled library."""
    cases: tuple[KernelSpeedCase, ...]


class PressureCase(Record):
    """A kernel and its build that loads but does not decode, with the floors of the card."""

    id: str
    bits: int
    rows: int
    weights: int
    bytes: int
    full_ns: tuple[int, ...]
    null_ns: tuple[int, ...]
    full_error: DecimalText
    null_error: DecimalText
    """Large: a build that decodes nothing cannot be right."""
    byte_floor_ns: int
    """The case's bytes at the card's measured read rate."""
    decode_floor_ns: int
    """The case's weights at the rate at which the card decodes without reading."""
    counters: dict[str, DecimalText] | None = later(None)
    """What the card counted during one launch, by name; without this field where the host could not count."""


class PressureMeasure(Record):
    """Where a kernel's time goes."""

    kind: Literal["pressure"] = "pressure"
    read_bytes_per_second: int
    decode_weights_per_second: dict[str, int]
    """By K."""
    cases: tuple[PressureCase, ...]


class SanitizerTool(Record):
    """One tool of compute-sanitizer."""

    tool: str
    errors: int
    """In the kernels under test; -1 where the tool printed no summary."""
    planted_errors: int
    """In a small kernel with a fault of the kind this tool finds."""
    launches: int
    """Launches of the kernels under test while the tool watched, by their own count."""
    words: str
    planted_words: str


class SanitizerMeasure(Record):
    """Memory and synchronisation faults of the kernels under test."""

    kind: Literal["sanitizer"] = "sanitizer"
    tools: tuple[SanitizerTool, ...]
