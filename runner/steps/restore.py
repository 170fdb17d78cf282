"""After the last boot: is anything of ours left?"""

from __future__ import annotations

import os
import time

from runner.boots import label_of, new_record
from runner.clock import now
from runner.model.evidence import Evidence
from runner.model.plan import PlannedWindow
from runner.steps.boots import AFTER_BOOTS, boot_records, write_record
from runner.steps.evidence import closed_in, keep
from runner.steps.state import Run


def restore(run: Run) -> Run:
    """Write the evidence of the ``restore`` window, where the plan has one."""
    for window in run.plan.windows:
        if window.instrument.startswith(AFTER_BOOTS) and not closed_in(run, window.id):
            keep(run, _evidence(run, window))
    return run.with_outcome(boots=boot_records(run))


def _evidence(run: Run, window: PlannedWindow) -> Evidence:
    """What the boots left. A seat that stands only for the run has no configuration to come back to."""
    opened = time.monotonic_ns()
    leftovers = [f"{boot.id}: {left}" for boot in run.outcome.boots for left in boot.leftovers]
    return Evidence(
        window=window.id,
        boot=_desk(run, window),
        instrument=window.instrument,
        variant=run.plan.variants["incumbent"],
        opened_at=now(),
        opened_ns=opened,
        closed_ns=time.monotonic_ns(),
        facts={"leftovers": list(leftovers), "requested": {}, "resolved": {}},
    )


def _desk(run: Run, window: PlannedWindow) -> str:
    """The desk boot that took the window's boot, or a record of this process, which looked itself."""
    for boot in run.outcome.boots:
        if boot.planned == window.boot:
            return boot.id
    record = new_record(window.boot, label=label_of(run.outcome.boots), pid=os.getpid(), ended="stopped")
    write_record(run, record)
    return record.id
