"""Lines of an order beside what its gates judge by.

The runner reads kill lines with other actions than to stop the work off the gates' figures. Lines under ``measure``
of a gate that exists are for a person, apart from those that its parameters repeat.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from typing import Any

from pydantic import ValidationError

from runner.errors import InputError
from runner.gates.figure_names import figure
from runner.kill_lines import strikes, words_of
from runner.model.order import WorkOrder
from runner.model.order.judgement import KillLine
from runner.model.order.measure import Threshold
from runner.model.order.text import line_of
from runner.model.report import ReportPredicate
from runner.yaml_strict import mapping

FOLLOWS = {
    "ship-off": "the work is delivered switched off: it can be adopted as descriptive only",
    "record": "nothing: it is on record",
}
"""What follows from a line that struck, by its action."""


def lines_struck(report: ReportPredicate) -> tuple[KillLine, ...]:
    """Kill lines that struck and do not stop the work, read off the verdicts and figures of the report."""
    found = {gate.name: gate for gate in report.gates}
    lines = [line for line in _kill_lines(report.order.text) if line.action != "stop" and line.gate in found]
    read = [line for line in lines if is_read(line)]
    return tuple(line for line in read if strikes(line, found[line.gate].verdict, found[line.gate].figures))


def struck_rows(report: ReportPredicate) -> tuple[tuple[str, str, str], ...]:
    """Line, action and what follows, in words."""
    return tuple((words_of(line), line.action, FOLLOWS[line.action]) for line in lines_struck(report))


def for_a_person(order: WorkOrder) -> tuple[tuple[str, str], ...]:
    """Gate and line, in words, of what a run of this order leaves open. Gates still to be written have none yet."""
    asked = [one for one in order.gates if one.planned is None and one.measure is not None]
    drawn = [
        (one.name, line)
        for one in asked
        if one.measure
        for line in one.measure.thresholds
        if not judged_by(one.parameters, line)
    ]
    return _open(drawn, [line for line in order.kill_lines if line.gate in {name for name, _ in drawn}])


def open_rows(report: ReportPredicate) -> tuple[tuple[str, str], ...]:
    """The same of the order in a report, read by its own fields."""
    gates = [one for one in _listed(report.order.text, "gates") if isinstance(one, dict) and "planned" not in one]
    drawn = []
    for one in gates:
        measure, parameters = one.get("measure"), one.get("parameters", {})
        listed = measure.get("thresholds", []) if isinstance(measure, dict) else []
        for line in listed if isinstance(listed, list) else []:
            with suppress(ValidationError):
                threshold = Threshold.model_validate(line)
                if not judged_by(parameters if isinstance(parameters, dict) else {}, threshold):
                    drawn.append((str(one.get("name")), threshold))
    return _open(drawn, [line for line in _kill_lines(report.order.text) if line.gate in {name for name, _ in drawn}])


def judged_by(parameters: Mapping[str, Any], line: Threshold) -> bool:
    """Whether a parameter of the gate bears the line's name and number, so that the gate judges it."""
    try:
        return line.pass_at is not None and Decimal(str(parameters[line.metric])) == Decimal(line.pass_at)
    except (KeyError, InvalidOperation):
        return False


def is_read(line: KillLine) -> bool:
    """Whether its gate gives what it rests on."""
    return line.metric is None or figure(line.gate, line.metric) is not None


def _open(drawn: Sequence[tuple[str, Threshold]], kill_lines: Sequence[KillLine]) -> tuple[tuple[str, str], ...]:
    rows = [(name, line_of(line)) for name, line in drawn]
    unread = [line for line in kill_lines if not is_read(line)]
    return (*rows, *((line.gate, f"{words_of(line).removeprefix(f'{line.gate} ')}: {line.action}") for line in unread))


def draws_lines(text: str) -> bool:
    """Whether an order's text has kill lines, which may rest on figures of the report."""
    return bool(_listed(text, "kill_lines"))


def _kill_lines(text: str) -> list[KillLine]:
    """Each by itself: the rest of an old order may have another schema."""
    found = []
    for line in _listed(text, "kill_lines"):
        with suppress(ValidationError):
            found.append(KillLine.model_validate(line))
    return found


def _listed(text: str, name: str) -> list[Any]:
    try:
        listed = mapping(text).get(name)
    except InputError:
        return []
    return listed if isinstance(listed, list) else []


__all__ = ["FOLLOWS", "draws_lines", "for_a_person", "is_read", "judged_by", "lines_struck", "open_rows", "struck_rows"]
