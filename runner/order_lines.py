"""Lines of a report's order that no gate of it judges: kill lines with other actions than to stop the work."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from pydantic import ValidationError

from runner.errors import InputError
from runner.gates.figure_names import figure
from runner.kill_lines import strikes, words_of
from runner.model.order.judgement import KillLine
from runner.model.report import ReportPredicate
from runner.yaml_strict import parse

FOLLOWS = {
    "ship-off": "the work is delivered switched off: it can be adopted as descriptive only",
    "record": "nothing: it is on record",
}
"""What follows from a line that struck, by its action."""


def lines_struck(report: ReportPredicate) -> tuple[KillLine, ...]:
    """Kill lines that struck and do not stop the work, read off the verdicts and figures of the report."""
    found = {gate.name: gate for gate in report.gates}
    lines = [line for line in _kill_lines(report.order.text) if line.action != "stop" and line.gate in found]
    read = [line for line in lines if line.metric is None or figure(line.gate, line.metric) is not None]
    return tuple(line for line in read if strikes(line, found[line.gate].verdict, found[line.gate].figures))


def struck_rows(report: ReportPredicate) -> tuple[tuple[str, str, str], ...]:
    """Line, action and what follows, in words."""
    return tuple((words_of(line), line.action, FOLLOWS[line.action]) for line in lines_struck(report))


def _kill_lines(text: str) -> list[KillLine]:
    """Each by itself: the rest of an old order may have another schema."""
    found = []
    for line in _listed(text, "kill_lines"):
        with suppress(ValidationError):
            found.append(KillLine.model_validate(line))
    return found


def _listed(text: str, name: str) -> list[Any]:
    try:
        order: Any = parse(text.encode()).value
    except InputError:
        return []
    listed = order.get(name) if isinstance(order, dict) else None
    return listed if isinstance(listed, list) else []


__all__ = ["FOLLOWS", "lines_struck", "struck_rows"]
