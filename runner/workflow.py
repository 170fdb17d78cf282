"""One run, step by step: each step takes what the one before it gave; an int is an exit code and ends the run."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from runner.steps.build import build
from runner.steps.judge import judge
from runner.steps.make import make
from runner.steps.measure import measure
from runner.steps.preflight import preflight
from runner.steps.record import record
from runner.steps.reduce import reduce
from runner.steps.report import report
from runner.steps.seal import seal
from runner.steps.self_test import self_test
from runner.steps.state import Run
from runner.steps.travel import travel

Step: TypeAlias = Callable[[Run], Run | int]

STEPS: tuple[Step, ...] = (
    preflight,
    build,
    make,
    seal,
    self_test,
    travel,
    measure,
    reduce,
    judge,
    record,
    report,
)


def execute(run: Run, steps: tuple[Step, ...] = STEPS) -> int:
    """Run the steps in order; the exit code of the one that ended the run.

    A step that was finished before a crash finds its result on disk and gives it back; so running the steps again is
    what ``--resume`` means.
    """
    for step in steps:
        run.journal.write("step-started", step=step.__name__)
        answer = step(run)
        run.journal.write("step-ended", step=step.__name__)
        if isinstance(answer, int):
            return answer
        run = answer
    raise AssertionError("the last step gives the exit code")


__all__ = ["STEPS", "Step", "execute"]
