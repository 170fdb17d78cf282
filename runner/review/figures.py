"""The series that a review draws, taken from a report's samples."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from runner import stats
from runner.model.report import Measured
from runner.model.sample import Sample, SensitivityMeasure
from runner.summary import launches_by_rows, primary_rate


@dataclass(frozen=True)
class Block:
    """One measured block."""

    window: str
    variant: str
    rate: float
    """Decode tok/s of one stream."""
    disturbed: bool


@dataclass(frozen=True)
class Pair:
    """One quad: the candidate's rate over the incumbent's, in percent above it."""

    quad: str
    percent: float


@dataclass(frozen=True)
class Pairs:
    """All quads of one instrument with the exact interval of their median."""

    values: tuple[Pair, ...]
    low: float
    high: float
    coverage: float


@dataclass(frozen=True)
class WindowRows:
    """What the routed experts of one rank ran in one window."""

    window: str
    rank: int
    launches: dict[str, dict[int, int]]
    """Variant to rows to launches; 65 stands for more than 64 rows."""


def blocks(measured: Measured) -> list[Block]:
    """Speed samples in the order in which they were measured."""
    return [
        Block(sample.window, sample.variant, float(rate), bool(sample.disturbed))
        for sample in measured.samples
        if (rate := primary_rate(sample)) is not None
    ]


def pairs(measured: Measured) -> Pairs | None:
    """The quads that have both arms, or None where no quad was planned or measured."""
    quads = {window.id: window.arguments.get("quad") for window in measured.plan.windows if window.arm == "drawn"}
    arms: dict[str, dict[bool, list[float]]] = {}
    for block in blocks(measured):
        quad = quads.get(block.window)
        if isinstance(quad, str) and not block.disturbed and block.rate > 0:
            arms.setdefault(quad, {True: [], False: []})[block.variant == "incumbent"].append(block.rate)
    logs = {quad: stats.log_ratio(arm[False], arm[True]) for quad, arm in arms.items() if all(arm.values())}
    if not logs:
        return None
    interval = stats.median_interval(list(logs.values()))
    values = tuple(Pair(quad, stats.percent(value)) for quad, value in logs.items())
    return Pairs(values, stats.percent(interval.low), stats.percent(interval.high), interval.coverage)


@dataclass(frozen=True)
class LayerCost:
    """What one changed layer costs alone, or all of them together."""

    layer: str
    percent: float
    """Rise of perplexity, mean over documents."""
    mean_kl: str
    """Nats."""


def layer_costs(measured: Measured) -> list[LayerCost]:
    """The sensitivity sweep, layer by layer, all layers together last."""
    return [
        LayerCost(row.layer, stats.percent(sum(map(float, row.deltas.values())) / len(row.deltas)), row.mean_kl)
        for sample in measured.samples
        if isinstance(sample.measure, SensitivityMeasure)
        for row in sample.measure.rows
        if row.deltas
    ]


def _rows(sample: Sample) -> list[WindowRows]:
    return [
        WindowRows(
            sample.window,
            each.rank,
            {variant: dict(rows) for variant, rows in launches_by_rows(each.witness).items()},
        )
        for each in sample.engagement
    ]


def rows_by_window(measured: Measured) -> list[WindowRows]:
    """Every window and rank that launched routed experts."""
    return [rows for sample in measured.samples for rows in _rows(sample) if rows.launches]


def variants(measured: Measured) -> list[str]:
    """Every variant that ran, the incumbent first, then by name."""
    seen = Counter(variant for rows in rows_by_window(measured) for variant in rows.launches)
    seen.update(sample.variant for sample in measured.samples)
    return sorted(seen, key=lambda variant: (variant != "incumbent", variant))


__all__ = [
    "Block",
    "LayerCost",
    "Pair",
    "Pairs",
    "WindowRows",
    "blocks",
    "layer_costs",
    "pairs",
    "rows_by_window",
    "variants",
]
