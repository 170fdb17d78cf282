"""The roofline: no threshold asks for less time than its bytes allow, no hope exceeds what its share allows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from math import prod

from runner.checks.fault import Fault
from runner.checks.gains import factor
from runner.model.order import Fact, WorkOrder
from runner.model.order.intent import ExpectedGain
from runner.model.order.measure import Measure, Threshold
from runner.model.order.roofline import Floor
from runner.model.seat import SeatManifest
from runner.probes import BYTES
from runner.roofline import agrees, floor_microseconds, whole_ceiling

MICROSECONDS = {
    **dict.fromkeys(("ns", "nanoseconds"), Decimal("0.001")),
    **dict.fromkeys(("µs", "\u03bcs", "us", "microseconds"), Decimal(1)),
    **dict.fromkeys(("ms", "milliseconds"), Decimal(1000)),
    **dict.fromkeys(("s", "seconds"), Decimal(1_000_000)),
}
"""Units of time; the micro of µs has two code points."""
FLOORS = "× floor"
"""Unit of a threshold that is a multiple of its floor."""
_BANDWIDTHS = {"MB/s": Decimal("0.001"), "GB/s": Decimal(1), "TB/s": Decimal(1000)}
_ROUNDED = Decimal("0.005")
"""How far a product of counts as they are written may lie from bytes that were counted from them."""
FASTEST_MEMORY = Decimal(20_000)
"""10⁹ bytes a second: more than any one device reads."""
DATA_SHEET = Decimal(4) / 3
"""How far what a data sheet promises may lie above the seat's measured cold read."""
_TIME = re.compile(r"(\d+(?:\.\d+)?) ?(" + "|".join(sorted(MICROSECONDS, key=len, reverse=True)) + r")\b")
Path = tuple[str | int, ...]


def floors(order: WorkOrder, manifest: SeatManifest | None = None) -> Iterator[Fault]:
    """Every fault of floors, of thresholds under them, and of the expected gain."""
    facts = {fact.id: fact for fact in order.facts if fact.value is not None}
    least: dict[str, Decimal] = {}
    for index, floor in enumerate(order.floors):
        yield from _floor(index, floor, least)
        behind = [facts[name] for name in floor.rests_on if name in facts]
        yield from _bytes(("floors", index, "bytes"), floor, behind)
        yield from _bandwidth(("floors", index, "bandwidth"), floor, behind, manifest)
    known = {floor.id: floor for floor in order.floors}
    for index, request in enumerate(order.gates):
        measure = request.measure
        for position, threshold in enumerate(measure.thresholds if measure else ()):
            path = ("gates", index, "measure", "thresholds", position)
            yield from _threshold(path, threshold, known, least)
        if measure is not None:
            times = [facts[name] for name in request.rests_on if name in facts and facts[name].unit in MICROSECONDS]
            yield from _implied(("gates", index, "measure", "thresholds"), measure, times, least)
    if order.intent.expected_gain:
        yield from _gain(order.intent.expected_gain)


def _floor(index: int, floor: Floor, known: dict[str, Decimal]) -> Iterator[Fault]:
    """Notes the floor's time in ``known``, where it has one."""
    try:
        least = floor_microseconds(Decimal(floor.bytes), Decimal(floor.bandwidth))
    except ValueError as error:
        yield Fault(("floors", index), f"{floor.id}: {error}")
        return
    known[floor.id] = least
    if floor.microseconds is not None and not agrees(floor.microseconds, least):
        message = f"{floor.id}: {floor.bytes} bytes at {floor.bandwidth} GB/s take {least:.4g} µs"
        yield Fault(("floors", index, "microseconds"), f"{message}, not {floor.microseconds}")


def _bytes(path: Path, floor: Floor, facts: list[Fact]) -> Iterator[Fault]:
    """A floor's bytes are those of its facts: so many times one, times the counts that it rests on, or their sum."""
    moved = [fact for fact in facts if _first(fact) in BYTES]
    if not moved:
        return
    counts = [fact for fact in facts if _first(fact) not in {*BYTES, *_BANDWIDTHS, *MICROSECONDS}]
    one = sum(Decimal(str(fact.value)) * BYTES[_first(fact)] for fact in moved)
    slack = sum(_half_digit(str(fact.value)) * BYTES[_first(fact)] for fact in moved)
    written = Decimal(floor.bytes)
    times = max(Decimal(1), (written / one).to_integral_value()) if one > 0 else Decimal(1)
    told = " and ".join(f"{fact.value} {fact.unit} ({fact.id})" for fact in (*moved, *counts))
    if counts and len(moved) == 1:
        product = one * prod((Decimal(str(fact.value)) for fact in counts), start=Decimal(1))
        if abs(written - product) > _ROUNDED * product:
            yield Fault(path, f"{floor.id}: {floor.bytes} bytes, and what it rests on makes {product:.8g}: {told}")
    elif written < one - slack or (len(moved) == 1 and abs(written - times * one) > times * slack + 1):
        yield Fault(path, f"{floor.id}: {floor.bytes} bytes are no whole number of times what it rests on: {told}")


def _bandwidth(path: Path, floor: Floor, facts: list[Fact], manifest: SeatManifest | None) -> Iterator[Fault]:
    """A bandwidth is that of the floor's fact, and not beyond what the seat's memory can be thought to do."""
    written = Decimal(floor.bandwidth)
    for fact in facts:
        if (unit := _first(fact)) in _BANDWIDTHS and abs(
            written - Decimal(str(fact.value)) * _BANDWIDTHS[unit]
        ) > _half_digit(str(fact.value)) * _BANDWIDTHS[unit]:
            message = (
                f"{floor.id}: {floor.bandwidth} GB/s, and what it rests on is {fact.value} {fact.unit} ({fact.id})"
            )
            yield Fault(path, message)
    machine = manifest.machine if manifest else None
    if manifest and machine and written > DATA_SHEET * Decimal(machine.bandwidth):
        message = f"{floor.id}: {floor.bandwidth} GB/s, where seat {manifest.name} was measured at {machine.bandwidth}"
        yield Fault(path, message)
    elif written > FASTEST_MEMORY:
        yield Fault(path, f"{floor.id}: {floor.bandwidth} GB/s: no memory of one device reads beyond {FASTEST_MEMORY}")


def _first(fact: Fact) -> str:
    """The first word of a fact's unit."""
    return (fact.unit or "").partition(" ")[0]


def _half_digit(written: str) -> Decimal:
    """Half of the last digit that is written."""
    exponent = Decimal(written).as_tuple().exponent
    return Decimal(10) ** int(exponent) / 2


def _threshold(path: Path, threshold: Threshold, known: dict[str, Floor], least: dict[str, Decimal]) -> Iterator[Fault]:
    if threshold.floor is None:
        yield from _unnamed(path, threshold, least)
        return
    if threshold.floor not in known:
        yield Fault((*path, "floor"), f"no floor {threshold.floor!r} here")
        return
    if threshold.floor not in least:
        return  # said at the floor itself
    if threshold.unit not in (*MICROSECONDS, FLOORS):
        yield Fault((*path, "unit"), f"a line over a floor is in {', '.join(MICROSECONDS)} or {FLOORS!r}")
        return
    floor, shortest = known[threshold.floor], least[threshold.floor]
    factor_of_unit = shortest if threshold.unit == FLOORS else MICROSECONDS[threshold.unit]
    for name, written in _lines(threshold):
        if (asked := Decimal(written) * factor_of_unit) < shortest:
            message = f"asks for {asked:.4g} µs; {floor.bytes} bytes ({floor.what}) take at least {shortest:.4g} µs"
            yield Fault((*path, name), message)


def _lines(threshold: Threshold) -> list[tuple[str, str]]:
    """The numbers of a line by field; of a kill line too, since it would kill every candidate."""
    named = (("kill_at", threshold.kill_at), ("pass_at", threshold.pass_at), ("stretch_at", threshold.stretch_at))
    return [(name, written) for name, written in named if written is not None]


def _unnamed(path: Path, threshold: Threshold, least: dict[str, Decimal]) -> Iterator[Fault]:
    """A time that speaks of a floor by its id and asks for less, without naming it under ``floor``."""
    if threshold.unit not in MICROSECONDS or threshold.op not in ("<", "<=", "=="):
        return
    words = f" {threshold.metric} {threshold.where or ''} ".lower()
    for floor, shortest in least.items():
        if f" {floor.replace('-', ' ')} " not in words.replace("-", " "):
            continue
        for name, written in _lines(threshold):
            if Decimal(written) * MICROSECONDS[threshold.unit] < shortest:
                message = f"{threshold.metric}: {written} {threshold.unit} lie below floor {floor} ({shortest:.4g} µs)"
                yield Fault((*path, name), message)


def _implied(path: Path, measure: Measure, facts: list[Fact], least: dict[str, Decimal]) -> Iterator[Fault]:
    """Ratios over the gate's own baseline that leave less than the floor of the same gate."""
    floor = max((least[line.floor] for line in measure.thresholds if line.floor in least), default=None)
    told = _TIME.search(measure.baseline.ref) if measure.baseline and measure.baseline.ref else None
    if told is not None:
        before, where = Decimal(told[1]) * MICROSECONDS[told[2]], "the baseline"
    elif len(facts) == 1:
        before, where = Decimal(str(facts[0].value)) * MICROSECONDS[str(facts[0].unit)], f"fact {facts[0].id}"
    else:
        return
    for position, line in enumerate(measure.thresholds):
        for name, written in _lines(line) if floor is not None and line.op in (">", ">=", "==") else ():
            times = factor(written, line.unit)
            if floor is not None and times is not None and times > 0 and before / times < floor:
                message = (
                    f"{line.metric}: {written} {line.unit} leave {before / times:.4g} of {where}'s {before:.6g} µs"
                )
                yield Fault((*path, position, name), f"{message}, and the floor is {floor:.4g} µs")


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
    for name, written in (("low", gain.low), ("high", gain.high)):
        times = factor(str(Decimal(written) - _half_digit(written)), gain.unit)
        if times is not None and times > most:
            message = f"a part of {gain.share} of the whole can make it at most {most:.3g} times as fast"
            yield Fault((*path, name), f"{message}, not {written} {gain.unit}")
