"""Kill lines: what was decided before the run to end the work, read off what a gate found."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from decimal import Decimal, InvalidOperation

from runner.model.order.judgement import KillLine
from runner.model.verdict import Figure, Status

_OPERATORS: dict[str, Callable[[Decimal, Decimal], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">=": operator.ge,
    ">": operator.gt,
}


def strikes(line: KillLine, status: Status, figures: Sequence[Figure]) -> bool:
    """Whether the line strikes, whatever its action: its gate FAILs or is INVALID, or its figure lies where it kills.

    A line with a figure leaves a mere FAIL alone (there may be room between kill and pass). A figure that its gate
    could not take, or does not have, strikes: a kill line that cannot be read is not passed. (`check` refuses a name
    that is none of its gate's figures.)
    """
    if status is Status.NOT_RUN:
        return False
    if line.metric is None or line.op is None or line.value is None:
        return status in (Status.FAIL, Status.INVALID)
    values = [figure.value for figure in figures if figure.name == line.metric]
    if status is Status.INVALID or len(values) != 1:
        return True
    try:
        value = Decimal(values[0])
    except InvalidOperation:
        return True
    return _OPERATORS[line.op](value, Decimal(line.value))


def struck(lines: Sequence[KillLine], gate: str, status: Status, figures: Sequence[Figure]) -> bool:
    """Whether one of the order's lines on this gate strikes and stops the work."""
    return any(strikes(line, status, figures) for line in lines if line.gate == gate and line.action == "stop")


def words_of(line: KillLine) -> str:
    """``kld FAIL or INVALID``, or ``speed log-ratio, median < 0.1``."""
    figure = f"{line.metric} {line.op} {line.value} {line.unit or ''}".strip() if line.metric else "FAIL or INVALID"
    return f"{line.gate} {figure}"


__all__ = ["strikes", "struck", "words_of"]
