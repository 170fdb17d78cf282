"""The roofline: no threshold asks for less time than its bytes allow, no hope exceeds what its share allows."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

from runner.checks.fault import Fault
from runner.model.order import WorkOrder
from runner.model.order.intent import ExpectedGain
from runner.model.order.measure import Threshold
from runner.model.order.roofline import Floor
from runner.roofline import agrees, floor_microseconds, whole_ceiling

MICROSECONDS = {"µs": Decimal(1), "us": Decimal(1), "ms": Decimal(1000), "s": Decimal(1_000_000)}
FLOORS = "× floor"
"""Unit of a threshold that is a multiple of its floor."""


def floors(order: WorkOrder) -> Iterator[Fault]:
    """Every fault of floors, of thresholds under them, and of the expected gain."""
    known = {floor.id: floor for floor in order.floors}
    for index, floor in enumerate(order.floors):
        yield from _floor(index, floor)
    for index, request in enumerate(order.gates):
        for position, threshold in enumerate(request.measure.thresholds if request.measure else ()):
            path = ("gates", index, "measure", "thresholds", position)
            yield from _threshold(path, threshold, known)
    if order.intent.expected_gain:
        yield from _gain(order.intent.expected_gain)


def _floor(index: int, floor: Floor) -> Iterator[Fault]:
    try:
        least = floor_microseconds(Decimal(floor.bytes), Decimal(floor.bandwidth))
    except ValueError as error:
        yield Fault(("floors", index), f"{floor.id}: {error}")
        return
    if floor.microseconds is not None and not agrees(floor.microseconds, least):
        message = f"{floor.id}: {floor.bytes} bytes at {floor.bandwidth} GB/s take {least:.4g} µs"
        yield Fault(("floors", index, "microseconds"), f"{message}, not {floor.microseconds}")


def _threshold(path: tuple[str | int, ...], threshold: Threshold, known: dict[str, Floor]) -> Iterator[Fault]:
    if threshold.floor is None:
        return
    if threshold.floor not in known:
        yield Fault((*path, "floor"), f"no floor {threshold.floor!r} here")
        return
    floor = known[threshold.floor]
    try:
        least = floor_microseconds(Decimal(floor.bytes), Decimal(floor.bandwidth))
    except ValueError:
        return  # said at the floor itself
    if threshold.unit not in (*MICROSECONDS, FLOORS):
        yield Fault((*path, "unit"), f"a line over a floor is in {', '.join(MICROSECONDS)} or {FLOORS!r}")
        return
    for name, written in (("pass_at", threshold.pass_at), ("stretch_at", threshold.stretch_at)):
        if written is None:
            continue
        factor = least if threshold.unit == FLOORS else MICROSECONDS[threshold.unit]
        asked = Decimal(written) * factor
        if asked < least:
            message = f"asks for {asked:.4g} µs; {floor.bytes} bytes ({floor.what}) take at least {least:.4g} µs"
            yield Fault((*path, name), message)


def _gain(gain: ExpectedGain) -> Iterator[Fault]:
    path = ("intent", "expected_gain")
    low, high = Decimal(gain.low), Decimal(gain.high)
    if low > high:
        yield Fault((*path, "low"), f"the low end {gain.low} lies above the high end {gain.high}")
    if gain.share is None:
        return
    try:
        most = whole_ceiling(Decimal(gain.share))
    except ValueError as error:
        yield Fault((*path, "share"), str(error))
        return
    if gain.unit == "ratio" and low > most:
        message = f"a part of {gain.share} of the whole can make it at most {most:.3g} times as fast, not {gain.low}"
        yield Fault((*path, "low"), message)
