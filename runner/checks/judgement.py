"""What decides: gates that are only planned, their instruments and lines, kill lines, and seats' capabilities."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from itertools import pairwise
from math import log

from runner.capabilities import lacking
from runner.checks.fault import Fault
from runner.checks.floors import MICROSECONDS
from runner.checks.gains import RATIOS, factor, is_per_cent
from runner.gates.figure_names import FIGURES, figure
from runner.gates.registry import all_gates
from runner.model.order import WorkOrder
from runner.model.order.judgement import GateRequest, KillLine
from runner.model.order.measure import Measure, Threshold
from runner.model.seat import SeatManifest
from runner.order_lines import judged_by

LEAST_RUNS = 2
"""From one run nobody knows how far a figure moves by itself."""
CHANGES = ("gain", "faster", "speed-up", "speedup", "saved", "loss", "slower", "regression")
"""Words of a metric in per cent whose 0 is no change."""
AT_LEAST, AT_MOST = (">", ">=", "=="), ("<", "<=", "==")
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
    yield from _contradictions(path, measure)
    for need in measure.needs:
        if manifest is not None and need in lacking(manifest) and measure.substitute is None:
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
    yield from _near(path, measure, threshold, manifest)


def _near(path: Path, measure: Measure, threshold: Threshold, manifest: SeatManifest | None) -> Iterator[Fault]:
    """Lines so near to no change that noise alone crosses them, and noise that is said to be next to nothing."""
    noise = threshold.noise
    if noise is not None and (Decimal(noise.half_width) <= 0 or noise.runs < LEAST_RUNS):
        message = f"{threshold.metric}: a noise of {noise.half_width} from {noise.runs} runs is none that was measured"
        yield Fault((*path, "noise"), f"{message}: above 0, from {LEAST_RUNS} runs or more, or leave it out")
        return
    if not _is_gain(measure, threshold):
        return
    seat = float(manifest.noise.a_a_half_width) if measure.place == "seat" and manifest is not None else 0.0
    own = _in_logarithms(noise.half_width, threshold.unit) if noise else None
    if own is not None and own < seat and "profiler" not in measure.needs:
        message = f"{threshold.metric}: noise {noise.half_width if noise else ''} is below the {seat} of seat"
        yield Fault((*path, "noise", "half_width"), f"{message} {manifest.name if manifest else ''}, whose rate it is")
        return
    width = seat if own is None else own
    source = f"{noise.how}, {noise.runs} runs" if noise else f"A/A of seat {manifest.name if manifest else ''}"
    for name, written in (("kill_at", threshold.kill_at), ("pass_at", threshold.pass_at)):
        times = factor(written, threshold.unit) if written is not None else None
        if times is not None and times > 0 and 0 < (distance := abs(log(times))) < width:
            message = f"{threshold.metric}: {written} {threshold.unit} is nearer to no change ({distance:.2g}) than the"
            yield Fault((*path, name), f"{message} noise {width:.4g} ({source})")


def _is_gain(measure: Measure, threshold: Threshold) -> bool:
    """Whether no change is 1, or 0 per cent: a share of a whole that the profiler times does not move like a rate."""
    if threshold.unit.lower() in RATIOS:
        return True
    named = any(word in threshold.metric.lower() for word in CHANGES)
    whole = " of " in threshold.unit and "profiler" in measure.needs
    return named and is_per_cent(threshold.unit) and (threshold.noise is not None or not whole)


def _in_logarithms(half_width: str, unit: str) -> float:
    """A noise in per cent as a natural-log ratio; that of a ratio is one."""
    return log(1 + Decimal(half_width) / 100) if is_per_cent(unit) else float(half_width)


def _contradictions(path: Path, measure: Measure) -> Iterator[Fault]:
    """Two lines over one metric that no figure can keep."""
    for position, line in enumerate(measure.thresholds):
        for other in measure.thresholds[:position]:
            if _cannot_both(line, other) or _cannot_both(other, line):
                message = f"{line.metric}: {line.op} {line.pass_at} and {other.op} {other.pass_at} {line.unit}"
                yield Fault((*path, "thresholds", position, "pass_at"), f"{message} cannot both be kept")
                break


def _cannot_both(lower: Threshold, upper: Threshold) -> bool:
    if (lower.metric, lower.where) != (upper.metric, upper.where) or lower.pass_at is None or upper.pass_at is None:
        return False
    if lower.op not in AT_LEAST or upper.op not in AT_MOST:
        return False
    least, most = _comparable(lower.pass_at, lower.unit), _comparable(upper.pass_at, upper.unit)
    if least[1] != most[1]:
        return False
    return least[0] > most[0] or (least[0] == most[0] and (lower.op == ">" or upper.op == "<"))


def _comparable(written: str, unit: str) -> tuple[Decimal, str]:
    """A number in the smallest of the units that mean the same kind."""
    if unit in MICROSECONDS:
        return Decimal(written) * MICROSECONDS[unit], "µs"
    times = factor(written, unit)
    return (Decimal(written), unit) if times is None else (times, "ratio")


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
