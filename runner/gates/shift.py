"""What ``watermark``, ``perturbation`` and ``knock-out`` share: a deliberate change must move each rank's output."""

from __future__ import annotations

from collections.abc import Iterable

from runner.gates.base import GateInput, GateParameters, Limit
from runner.gates.common import Reading, figure, of_kind
from runner.model.sample import ShiftMeasure
from runner.model.verdict import Figure


class ShiftParameters(GateParameters):
    """How far is far."""

    factor: Limit = "10"
    """Least shift of every rank as a multiple of the floor (the same request repeated with nothing changed)."""
    least: Limit = "1e-4"
    """Least shift in nats, where the floor is 0."""


def shift_failures(
    wanted: ShiftParameters, readings: Iterable[Reading], given: GateInput
) -> tuple[list[str], list[Figure]]:
    """One failure for each rank of a reading's boot that did not move, or of which nothing is known."""
    failures: list[str] = []
    figures: list[Figure] = []
    for reading, shift in of_kind(readings, ShiftMeasure):
        found, seen = _of_one(wanted, reading, shift, given)
        failures, figures = failures + found, figures + seen
    return failures, figures


def _of_one(
    wanted: ShiftParameters, reading: Reading, shift: ShiftMeasure, given: GateInput
) -> tuple[list[str], list[Figure]]:
    limit = max(float(wanted.factor) * float(shift.floor), float(wanted.least))
    found = {rank.rank: float(rank.observed) for rank in shift.ranks}
    expected = sorted({rank.rank for boot in given.boots if boot.id == reading.sample.boot for rank in boot.ranks})
    name = reading.window.id
    failures = [f"{name}: rank {rank} was never changed" for rank in expected if rank not in found]
    failures += [
        f"{name}: rank {rank} moved the output by {value:.3g} nats, at least {limit:.3g} was to be seen"
        for rank, value in found.items()
        if not value > limit
    ]
    figures = [
        figure(f"{name} rank {rank}", value, unit="nats", limit=f"> {limit:.6g}") for rank, value in found.items()
    ]
    return failures, [*figures, figure(f"{name} floor", float(shift.floor), unit="nats")]
