"""What decides: gates that are only planned, their instruments and lines, kill lines, and seats' capabilities."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from itertools import pairwise
from math import log

from runner.checks.fault import Fault
from runner.gates.figure_names import FIGURES, figure
from runner.gates.registry import all_gates
from runner.model.order import WorkOrder
from runner.model.order.judgement import GateRequest, KillLine
from runner.model.order.measure import Measure, Threshold
from runner.model.seat import SeatManifest
from runner.order_lines import judged_by

RATIOS = ("ratio", "×")
"""Units of a threshold whose distance from 1 is a gain."""
Path = tuple[str | int, ...]


def planned_gates(order: WorkOrder) -> tuple[GateRequest, ...]:
    """Gates that this checkout does not have yet."""
    return tuple(request for request in order.gates if request.planned is not None)


def judgement(order: WorkOrder, manifest: SeatManifest | None) -> Iterator[Fault]:
    """Faults of gates and kill lines, apart from the parameters of gates that exist."""
    names = {known.NAME for known in all_gates()}
    planned = {request.name for request in planned_gates(order)}
    for index, request in enumerate(order.gates):
        path: Path = ("gates", index)
        if request.planned is not None:
            yield from _planned(path, request, names)
        elif manifest is None and request.name not in names:
            yield Fault((*path, "name"), f"unknown gate {request.name}; one that is still to be written says `planned`")
        if request.measure is not None:
            yield from _measure((*path, "measure"), request.measure, manifest)
            if request.planned is None and request.name in names:
                yield from _judged_elsewhere((*path, "measure", "thresholds"), request, request.measure)
    for index, line in enumerate(order.kill_lines):
        yield from _kill_line(("kill_lines", index), line)
        if line.gate in planned:
            continue  # its figures are still to be written
        yield from _figure(("kill_lines", index, "metric"), line, order, manifest)


def _planned(path: Path, request: GateRequest, names: set[str]) -> Iterator[Fault]:
    if request.name in names:
        yield Fault((*path, "planned"), f"gate {request.name} exists: leave out `planned`")
    if request.parameters or request.windows:
        yield Fault(path, f"{request.name}: a planned gate has no parameters yet; its lines belong under measure")
    if request.measure is None:
        yield Fault(path, f"{request.name}: a planned gate says under measure how it will be measured")


def _measure(path: Path, measure: Measure, manifest: SeatManifest | None) -> Iterator[Fault]:
    if measure.instrument is None and measure.place != "person":
        yield Fault((*path, "instrument"), "no instrument: a figure without its arguments cannot be had again")
    elif measure.instrument is not None and not measure.instrument.argv:
        yield Fault((*path, "instrument", "argv"), f"{measure.instrument.path}: no arguments; (none) if it has none")
    sealed = [line for line in measure.thresholds if line.pass_at is not None or line.kill_at is not None]
    if measure.blocking and not sealed and measure.place != "person":
        yield Fault((*path, "thresholds"), "a blocking gate without a line decides nothing: margins are sealed before")
    for position, threshold in enumerate(measure.thresholds):
        yield from _threshold((*path, "thresholds", position), measure, threshold, manifest)
    for need in measure.needs:
        if manifest is not None and need in manifest.lacks and measure.substitute is None:
            message = f"seat {manifest.name} has no {need}: name a substitute, or another seat"
            yield Fault((*path, "needs"), message)


def _judged_elsewhere(path: Path, request: GateRequest, measure: Measure) -> Iterator[Fault]:
    """A gate that exists judges by its parameters: what one of them or a kill line can say is nothing for a person."""
    own = {f"{known.NAME}@{known.VERSION}": known.Parameters.model_fields for known in all_gates()}
    parameters = own.get(f"{request.name}@{request.version}", {})
    for position, line in enumerate(measure.thresholds):
        if judged_by(request.parameters, line):
            continue
        if line.metric in parameters:
            number = line.pass_at or line.kill_at or line.stretch_at
            message = f"no gate judges a line here: {request.name} judges by parameters: {{{line.metric}: {number}}}"
            yield Fault((*path, position, "metric"), message)
        elif figure(request.name, line.metric) is not None:
            message = (
                f"no gate judges a line here: {line.metric} is a figure of {request.name}, so draw it as a kill line"
            )
            known = f", or by its parameters {', '.join(parameters)}" if parameters else ""
            yield Fault((*path, position, "metric"), message + known)


def _threshold(path: Path, measure: Measure, threshold: Threshold, manifest: SeatManifest | None) -> Iterator[Fault]:
    if threshold.pass_at is None and threshold.kill_at is None and threshold.stretch_at is None:
        yield Fault(path, f"{threshold.metric}: a line without a number")
    named = [("kill_at", threshold.kill_at), ("pass_at", threshold.pass_at), ("stretch_at", threshold.stretch_at)]
    given = [(name, Decimal(text)) for name, text in named if text is not None]
    for (before, worse), (name, better) in pairwise(given):
        if worse > better if threshold.op in (">", ">=") else worse < better:
            yield Fault((*path, name), f"{threshold.metric}: {name} {better} is worse than {before} {worse}")
    if threshold.unit not in RATIOS or threshold.pass_at is None or Decimal(threshold.pass_at) <= 0:
        return
    distance = abs(log(Decimal(threshold.pass_at)))
    width, source = _noise(measure, threshold, manifest)
    if 0 < distance < width:
        message = f"{threshold.metric}: {threshold.pass_at} is nearer to no change than the noise {width} ({source})"
        yield Fault((*path, "pass_at"), message)


def _noise(measure: Measure, threshold: Threshold, manifest: SeatManifest | None) -> tuple[float, str]:
    """The line's own noise, or the seat's for a rate that the seat gives."""
    if threshold.noise is not None:
        return float(threshold.noise.half_width), f"{threshold.noise.how}, {threshold.noise.runs} runs"
    if measure.place == "seat" and manifest is not None:
        return float(manifest.noise.a_a_half_width), f"A/A of seat {manifest.name}, {manifest.noise.source}"
    return 0.0, "not stated"


def _kill_line(path: Path, line: KillLine) -> Iterator[Fault]:
    if not line.decided_before_run:
        yield Fault((*path, "decided_before_run"), "a kill line is decided before the run or it is none")
    given = [part is not None for part in (line.metric, line.op, line.value)]
    if any(given) and not all(given):
        yield Fault(path, f"{line.gate}: metric, op and value belong together")


def looked_at_by_a_person(order: WorkOrder, gate: str) -> frozenset[str]:
    """Metrics of the lines that the order draws on a gate which exists and which that gate does not judge."""
    asked = [one for one in order.gates if one.name == gate and one.planned is None and one.measure is not None]
    return frozenset(line.metric for one in asked if one.measure for line in one.measure.thresholds)


def _figure(path: Path, line: KillLine, order: WorkOrder, manifest: SeatManifest | None) -> Iterator[Fault]:
    """A line on a figure which its gate never gives would strike on a candidate that passes."""
    if line.metric is None:
        return
    parts = figure(line.gate, line.metric)
    if parts is None and line.action != "stop" and line.metric in looked_at_by_a_person(order, line.gate):
        return
    if parts is None:
        known = "; ".join(FIGURES.get(line.gate, ())) or "none that a line can rest on"
        yield Fault(path, f"gate {line.gate} gives no figure {line.metric!r}; its figures: {known}")
        return
    asked = next((request.windows.get("languages") for request in order.gates if request.name == line.gate), None)
    language = parts.get("language")
    if isinstance(asked, list) and language is not None and language not in asked:
        yield Fault(path, f"gate {line.gate} is not asked for {language}, so {line.metric!r} is never given")
    if manifest is not None and int(parts.get("rank", 0)) >= manifest.tensor_parallel:
        yield Fault(path, f"seat {manifest.name} has {manifest.tensor_parallel} ranks, so there is no {line.metric!r}")
