"""A seat's noise, measured from the signed reports of its runs: what a manifest's ``noise`` block may say."""

from __future__ import annotations

from collections.abc import Collection
from math import sqrt

from runner.counts import refusals
from runner.errors import InputError
from runner.ledger import Ledger
from runner.model.base import Record
from runner.model.report import Measured, ReportPredicate
from runner.model.sample import SpeedMeasure
from runner.plan_windows import QUAD
from runner.stats import FLOOR_PAIRS, a_a_floor, log_ratio, total

BOOTS = 4
"""Fewer boots and nothing is said about how boots differ."""
SIGMAS = 3
"""The bound that noise alone crosses in about one run in 700, if it is normal."""


class RunNoise(Record):
    """One run's part, as natural-log ratios."""

    run: str
    a_a_half_width: float | None
    """Half of the interval of the run's A/A pairs; None where the arms differ, or each block had a boot of its own."""
    alone_over_shared: float | None
    """The incumbent's rate in the boots that are its own over that in the shared boots; None in an A/A run."""
    boots: int
    """Boots in which the incumbent's rate was measured."""


class SeatNoise(Record):
    """What the runs of one seat say together."""

    seat: str
    runs: tuple[RunNoise, ...]
    a_a_half_width: float | None
    """Of the latest A/A run."""
    boot_to_boot: float | None
    """Three times the root mean square of ``alone_over_shared``; None from fewer than four boots."""
    boots: int

    @property
    def lines(self) -> list[str]:
        """For the terminal; the last lines are the manifest's block."""
        found = [
            f"{one.run}  {one.boots} boots  "
            + (f"A/A ±{one.a_a_half_width:.4f}" if one.a_a_half_width is not None else "")
            + (f"incumbent alone over shared {one.alone_over_shared:+.4f}" if one.alone_over_shared is not None else "")
            for one in self.runs
        ]
        if self.a_a_half_width is not None:
            source = [one.run for one in self.runs if one.a_a_half_width is not None][-1]
            found += [f'a_a_half_width: "{self.a_a_half_width:.4f}"', f"source: {source}"]
        if self.boot_to_boot is not None:
            sources = " ".join(one.run for one in self.runs if one.alone_over_shared is not None)
            found += [f'boot_to_boot: "{self.boot_to_boot:.2f}"', f"boot_to_boot_source: {sources}"]
        return found


def seat_noise(ledger: Ledger, seat: str, names: Collection[str] = ()) -> SeatNoise:
    """From every report of ``seat`` that verifies and measured a rate, whatever its verdict.

    ``names`` of runs leave out all others.

    Raises InputError where there is none.
    """
    asked = [
        (entry, report)
        for entry, report in ledger.of(ReportPredicate)
        if report.seat.name == seat and (not names or report.run in names)
    ]
    refused = refusals((entry for entry, _ in asked), ledger)
    reports = [(report.run, ledger.measured(entry)) for entry, report in asked if entry.digest not in refused]
    runs = tuple(found for run, measured in sorted(reports, key=lambda one: one[0]) if (found := _of(run, measured)))
    if not runs:
        raise InputError(
            "no report measured a rate on this seat",
            where=seat,
            next_step="`runner execute` an order of kind gate with the gate speed on it",
        )
    halves = [one.a_a_half_width for one in runs if one.a_a_half_width is not None]
    ahead = [one for one in runs if one.alone_over_shared is not None]
    boots = sum(one.boots for one in ahead)
    spread = SIGMAS * sqrt(total((one.alone_over_shared or 0.0) ** 2 for one in ahead) / len(ahead)) if ahead else None
    return SeatNoise(
        seat=seat,
        runs=runs,
        a_a_half_width=halves[-1] if halves else None,
        boot_to_boot=spread if boots >= BOOTS else None,
        boots=boots,
    )


def _of(run: str, measured: Measured) -> RunNoise | None:
    roles = {boot.id: boot.role for boot in measured.plan.boots}
    planned = {window.id: window for window in measured.plan.windows}
    incumbent = measured.plan.variants["incumbent"]
    rates: dict[str, list[float]] = {}
    quads: dict[str, list[tuple[bool, float]]] = {}
    boots = set()
    for sample in measured.samples:
        if not isinstance(sample.measure, SpeedMeasure) or sample.variant != incumbent or sample.disturbed:
            continue
        window, value = planned[sample.window], float(sample.measure.decode_rate)
        rates.setdefault(roles[window.boot], []).append(value)
        boots.add(sample.boot)
        quads.setdefault(str(window.arguments.get("quad", "")), []).append(
            (window.arguments.get("block") in (0, 3), value)
        )
    if not rates.get("shared"):
        return None
    same = measured.plan.variants["candidate"] == incumbent
    alone = rates.get("incumbent-only")
    return RunNoise(
        run=run,
        a_a_half_width=_half_width(quads) if same and measured.plan.pairing == "block" else None,
        alone_over_shared=log_ratio(alone, rates["shared"]) if alone else None,
        boots=len(boots),
    )


def _half_width(quads: dict[str, list[tuple[bool, float]]]) -> float | None:
    """Outer blocks of a quad against its inner ones, as the gate pairs equal arms; None from fewer than six quads."""
    values = [
        log_ratio([rate for outer, rate in blocks if outer], [rate for outer, rate in blocks if not outer])
        for blocks in quads.values()
        if len(blocks) == QUAD
    ]
    return a_a_floor(values) if len(values) >= FLOOR_PAIRS else None


__all__ = ["BOOTS", "RunNoise", "SeatNoise", "seat_noise"]
