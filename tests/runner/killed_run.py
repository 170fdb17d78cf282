"""Runs the first steps of a run and then dies as ``kill -9`` would: ``killed_run.py ORDER STEPS [RUN]``."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from runner.session import open_run
from runner.steps.state import Run, Silent
from runner.workflow import STEPS, execute


def die(run: Run) -> int:
    """The end of the process, without any cleaning."""
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


if __name__ == "__main__":
    order, count, *resume = sys.argv[1:]
    run = open_run(Path(order), resume=resume[0] if resume else "", progress=Silent())
    execute(run, (*STEPS[: int(count)], die))
