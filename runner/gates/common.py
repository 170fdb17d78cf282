"""What every gate checks before it decides: parameters, samples, boots, faults and engagement."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

from pydantic import ValidationError

from runner.gates.base import GateInput, GateParameters
from runner.gates.engagement import counted_layers, engagement_faults, operator_of
from runner.model.base import Operator, Record, decimal_text
from runner.model.plan import PlannedWindow
from runner.model.sample import RefusalMeasure, Sample
from runner.model.verdict import Figure, Status, Verdict

P = TypeVar("P", bound=GateParameters)
M = TypeVar("M", bound=Record)


@dataclass(frozen=True)
class Reading:
    """A planned window with the sample that counts for it."""

    window: PlannedWindow
    sample: Sample


@dataclass(frozen=True)
class Decision:
    """A gate's answer before it is written down."""

    status: Status
    reasons: tuple[str, ...]
    figures: tuple[Figure, ...] = ()


_SPECULATION = "speculative_config"

Then = Callable[[P, tuple[Reading, ...], GateInput], Decision]


def figure(name: str, value: float, *, unit: str = "", limit: str = "") -> Figure:
    """A number with its limit."""
    return Figure(name=name, value=decimal_text(value), unit=unit, limit=limit)


def verdict(name: str, version: int, decision: Decision) -> Verdict:
    """The decision under the gate's name."""
    return Verdict(
        gate=name, version=version, status=decision.status, reasons=decision.reasons, figures=decision.figures
    )


def by_limits(failures: Iterable[str], figures: tuple[Figure, ...], passed: str) -> Decision:
    """FAIL with every broken limit, or PASS with one sentence."""
    reasons = tuple(failures)
    return Decision(Status.FAIL if reasons else Status.PASS, reasons or (passed,), figures)


def parse(parameters: type[P], given: GateInput) -> P | Decision:
    """The gate's parameters, or INVALID naming the one that cannot be used."""
    try:
        return parameters.model_validate(given.parameters)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        return invalid(f"parameter {where}: {first['msg']}")


def decide(parameters: type[P], kinds: tuple[type[Record], ...], given: GateInput, then: Then[P]) -> Decision:
    """The common checks, then ``then`` on readings that are all valid measurements of the planned windows.

    ``kinds`` are the measures the gate reads. INVALID with every fault found, and where the figures are so large or so
    small that nothing can be worked out from them: a gate that raised would let the worst candidate go without a
    verdict. NOT_RUN where there is no sample at all.
    """
    wanted = parse(parameters, given)
    if isinstance(wanted, Decision):
        return wanted
    if not given.samples:
        return Decision(Status.NOT_RUN, ("no sample was taken",))
    faults = [*_stray(given), *_unplanned(given)]
    readings = []
    for window in given.windows:
        sample, fault = counting_sample(given, window)
        if sample is None:
            faults.append(fault)
        elif not isinstance(sample.measure, kinds):
            faults.append(f"{window.id}: a sample of kind {sample.measure.kind} is no reading for this gate")
        else:
            readings.append(Reading(window, sample))
    layers = layers_of(given)
    for reading in readings:
        faults += sample_faults(reading.sample, reading.window, given, layers(reading.window))
    if faults:
        return invalid(*faults)
    try:
        return then(wanted, tuple(readings), given)
    except (ArithmeticError, ValueError):  # their words differ between versions of Python, a verdict's must not
        return invalid("the figures of the samples lie outside what the gate can work out in binary64")


def of_kind(readings: Iterable[Reading], kind: type[M]) -> list[tuple[Reading, M]]:
    """Readings of one kind with their measure."""
    return [(one, one.sample.measure) for one in readings if isinstance(one.sample.measure, kind)]


def counting_sample(given: GateInput, window: PlannedWindow) -> tuple[Sample | None, str]:
    """The window's one undisturbed sample, or the last disturbed one; none, or two that count, is a fault.

    A block is repeated only because the machine was disturbed: two undisturbed samples would be a choice.
    """
    found = [sample for sample in given.samples if sample.window == window.id]
    calm = [sample for sample in found if not sample.disturbed]
    if not found:
        return None, f"{window.id}: not measured"
    if len(calm) > 1:
        return None, f"{window.id}: measured {len(calm)} times with nothing disturbed"
    return (calm or found)[-1], ""


def sample_faults(sample: Sample, window: PlannedWindow, given: GateInput, layers: frozenset[str]) -> tuple[str, ...]:
    """What keeps one sample from counting: its own faults, another instrument or boot, and law 1."""
    faults = [f"{window.id}: {fault}" for fault in sample.faults]
    if sample.instrument != window.instrument:
        faults.append(f"{window.id}: read by {sample.instrument}, planned was {window.instrument}")
    if not sample.evidence:
        faults.append(f"{window.id}: no evidence is named")
    if on_desk(given, window):
        return tuple(faults)
    if isinstance(sample.measure, RefusalMeasure) and sample.measure.refused:
        return tuple(faults)  # the boot never served: there is nothing to count
    return (*faults, *engagement_faults(sample, window, given.boots, layers))


def layers_of(given: GateInput) -> Callable[[PlannedWindow], frozenset[str]]:
    """By window: layers of its declared operator, counted in any window of boots that speculate alike.

    A draft layer runs in no other boot.
    """
    speculation = {boot.id: boot.arguments.get(_SPECULATION, "as the seat") for boot in given.planned_boots}

    @cache
    def layers(boot: str, operator: Operator) -> frozenset[str]:
        own = speculation.get(boot)
        alike = {one.id for one in given.windows if speculation.get(one.boot) == own}
        return counted_layers((sample for sample in given.samples if sample.window in alike), operator)

    return lambda window: layers(window.boot, operator_of(window))


def on_desk(given: GateInput, window: PlannedWindow) -> bool:
    """Whether the window is one of a desk boot: no engine, no engagement counters."""
    return any(boot.id == window.boot and boot.role == "desk" for boot in given.planned_boots)


def _stray(given: GateInput) -> list[str]:
    known = {window.id for window in given.windows}
    return [
        f"{sample.window}: a sample of a window this gate does not read"
        for sample in given.samples
        if sample.window not in known
    ]


def _unplanned(given: GateInput) -> list[str]:
    """Samples of boots without a record, or of another boot than the one planned for the window."""
    windows = {window.id: window for window in given.windows}
    boots = {boot.id: boot for boot in given.boots}
    faults = []
    for sample in given.samples:
        window, boot = windows.get(sample.window), boots.get(sample.boot)
        if window is None or on_desk(given, window):
            continue
        if boot is None:
            faults.append(f"{window.id}: boot {sample.boot} left no record")
        elif boot.planned != window.boot:
            faults.append(f"{window.id}: measured in boot {boot.planned}, planned was {window.boot}")
    return faults


def invalid(*reasons: str) -> Decision:
    """INVALID with its reasons."""
    return Decision(Status.INVALID, reasons)
