"""After the last boot: is anything of ours left, and is the seat as its manifest wants it?"""

from __future__ import annotations

import time

from runner.clock import now
from runner.model.evidence import Evidence
from runner.steps.boots import AFTER_BOOTS
from runner.steps.evidence import closed_in, keep
from runner.steps.state import Run


def restore(run: Run) -> Run:
    """Write the evidence of the ``restore`` window, where the plan has one."""
    for window in run.plan.windows:
        if window.instrument.startswith(AFTER_BOOTS) and not closed_in(run, window.id):
            opened = time.monotonic_ns()
            leftovers = [f"{boot.id}: {left}" for boot in run.outcome.boots for left in boot.leftovers]
            keep(
                run,
                Evidence(
                    window=window.id,
                    boot=next(boot.id for boot in reversed(run.outcome.boots) if boot.planned == window.boot),
                    instrument=window.instrument,
                    variant=run.plan.variants["incumbent"],
                    opened_at=now(),
                    opened_ns=opened,
                    closed_ns=time.monotonic_ns(),
                    facts={"leftovers": list(leftovers), "fields": []},
                ),
            )
    return run
