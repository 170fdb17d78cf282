"""How a gate measures and where it draws its lines, for gates whose parameters do not say it all."""

from __future__ import annotations

from typing import Literal

from runner.model.base import Record, Slug
from runner.model.scalars import Flag, Line, Number, PinOrUnknown, Whole


class InstrumentUse(Record):
    """The instrument with every argument: without them a figure cannot be had again."""

    path: Line
    digest: PinOrUnknown = "unknown"
    argv: tuple[Line, ...]
    """All arguments; ``(none)`` where it takes none."""


class Baseline(Record):
    """What the figure is compared with, and whether the two may be compared at all."""

    kind: Literal["same-process", "same-session", "same-boot-block", "recorded", "none"]
    ref: Line | None = None
    """The recorded figure with its conditions."""


class NoiseBand(Record):
    """How far the figure moves by itself."""

    half_width: Number
    """In the threshold's unit; for a ratio, of its natural logarithm."""
    how: Line
    runs: Whole


class Threshold(Record):
    """One line of a gate."""

    metric: Line
    op: Literal["<", "<=", "==", ">=", ">"]
    """The figure has to be on this side."""
    unit: Line
    where: Line | None = None
    """The cases it holds for, for example ``K2, 4 rows``."""
    kill_at: Number | None = None
    """Beyond this on the wrong side, the kill line's action follows."""
    pass_at: Number | None = None
    stretch_at: Number | None = None
    """Worth knowing; passes or fails nothing."""
    floor: Slug | None = None
    """The floor below which no time of this line may lie."""
    noise: NoiseBand | None = None


class Exemption(Record):
    """A case that may miss the line."""

    case: Line
    reason_required: Flag = True


class Measure(Record):
    """A gate as a person would have to run it."""

    place: Literal["desk", "relay", "seat", "person"]
    blocking: Flag = True
    instrument: InstrumentUse | None = None
    """Absent only where a person looks."""
    conditions_to_match: tuple[Line, ...] = ()
    baseline: Baseline | None = None
    arms: tuple[Line, ...] = ()
    """In the order they are run, for example ``off, on, off``."""
    repeats: Whole = 1
    statistic: Literal["p50", "p95", "median", "mean", "min", "max", "exact", "band"] = "exact"
    per: tuple[Line, ...] = ()
    """What the figure is taken for separately: rank, layer, bits, rows, language."""
    thresholds: tuple[Threshold, ...] = ()
    exempt: tuple[Exemption, ...] = ()
    needs: tuple[Literal["gpu", "network", "docker", "sanitizer", "profiler"], ...] = ()
    """Capabilities without which it cannot run."""
    substitute: Line | None = None
    """What stands in where a capability is missing."""
    on_fail: Literal["stop", "cut", "record", "repair"] = "stop"
    evidence_required: tuple[Line, ...] = ()
    anti_vacuity: tuple[Line, ...] = ()
    """What shows that the thing under test ran while it was measured."""
