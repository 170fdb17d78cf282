"""A run that dies as ``kill -9`` would: ``killed_run.py ORDER MOMENT [RUN]``.

MOMENT is a number of finished steps, or a kind of event: the run dies once one of these is written to its journal.
"""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from runner.session import open_run
from runner.steps.journal import Journal
from runner.steps.state import Run, Silent
from runner.workflow import STEPS, execute


def die(*_: Run) -> int:
    """The end of the process, without any cleaning."""
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


class LastWords(Journal):
    """A journal whose writer dies after one kind of event."""

    last = ""

    def write(self, kind: str, **facts: Any) -> None:
        super().write(kind, **facts)
        if kind == self.last:
            die()


if __name__ == "__main__":
    order, moment, *resume = sys.argv[1:]
    run = open_run(Path(order), resume=resume[0] if resume else "", progress=Silent())
    if moment.isdigit():
        execute(run, (*STEPS[: int(moment)], die))
    journal = LastWords(run.journal.path)
    journal.last = moment
    execute(replace(run, journal=journal))
