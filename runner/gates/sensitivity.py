"""``sensitivity``: what each changed layer costs alone, and that all of them together stay below the retreat line."""

from __future__ import annotations

from runner.gates.base import GateInput, GateParameters, Limit
from runner.gates.common import Decision, Reading, by_limits, decide, figure, invalid, of_kind, verdict
from runner.model.sample import SensitivityMeasure, SensitivityRow
from runner.model.verdict import Figure, Verdict
from runner.stats import DOCUMENTS, growth, total, worst_end

NAME = "sensitivity"
VERSION = 1

TOGETHER = "together"


class Parameters(GateParameters):
    """The retreat line, sealed before the run."""

    line: Limit
    """Largest relative rise of perplexity of all layers together: the high end of the interval of the median document.
    Singles do not add up (campaign section 2.1, A11), so only the whole decides."""
    each: Limit | None = None
    """The same for every single layer, where the order wants it."""
    coverage: Limit = "0.95"
    """Least coverage of the interval of the median document."""


def judge(given: GateInput) -> Verdict:
    """FAIL above a line; the cost of every layer is in the figures whatever the verdict."""
    return verdict(NAME, VERSION, decide(Parameters, (SensitivityMeasure,), given, _decide))


def _decide(wanted: Parameters, readings: tuple[Reading, ...], given: GateInput) -> Decision:
    failures: list[str] = []
    figures: list[Figure] = []
    for reading, found in of_kind(readings, SensitivityMeasure):
        names = [row.layer for row in found.rows]
        if names.count(TOGETHER) != 1 or len(names) < 2 or len(set(names)) != len(names):
            return invalid(
                f"{reading.window.id}: not every layer once and all of them together once: {', '.join(names)}"
            )
        for row in found.rows:
            if len(row.deltas) < DOCUMENTS:
                return invalid(f"{row.layer}: {len(row.deltas)} documents, at least {DOCUMENTS} are needed")
            limit = wanted.line if row.layer == TOGETHER else wanted.each
            high = _rise(worst_end(_deltas(row), float(wanted.coverage)).high)
            figures += [
                figure(f"{row.layer} perplexity", _rise(total(_deltas(row)) / len(row.deltas)), unit="relative"),
                figure(f"{row.layer} worst end", high, unit="relative", limit="" if limit is None else f"<= {limit}"),
                figure(f"{row.layer} mean KL", float(row.mean_kl), unit="nats"),
            ]
            if limit is not None and high > float(limit):
                failures.append(
                    f"{row.layer}: perplexity rises by up to {100 * high:.3g} %, the line is {100 * float(limit):.3g} %"
                )
    return by_limits(failures, tuple(figures), "all changed layers together stay below the retreat line")


def _deltas(row: SensitivityRow) -> list[float]:
    return [float(delta) for delta in row.deltas.values()]


def _rise(nats: float) -> float:
    """A difference of losses as a relative rise of perplexity."""
    return growth(nats) - 1
