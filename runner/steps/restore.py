"""After the last boot: is anything of ours left, and does the standing configuration come back?"""

from __future__ import annotations

import os
import time
from typing import TypeAlias

from pydantic import JsonValue

from runner.boots import label_of, new_record
from runner.clock import now
from runner.errors import SeatError
from runner.model.evidence import Evidence
from runner.model.plan import PlannedWindow
from runner.standing import brought_up, standing_state
from runner.steps.boots import AFTER_BOOTS, boot_records, write_record
from runner.steps.evidence import closed_in, keep
from runner.steps.state import Run
from serve.witness.environment import LIVE

Facts: TypeAlias = dict[str, JsonValue]
STANDING = "the standing configuration"


def restore(run: Run) -> Run:
    """Write the evidence of the ``restore`` window, where the plan has one."""
    for window in run.plan.windows:
        if window.instrument.startswith(AFTER_BOOTS) and not closed_in(run, window.id):
            keep(run, _evidence(run, window))
    return run.with_outcome(boots=boot_records(run))


def _evidence(run: Run, window: PlannedWindow) -> Evidence:
    """What the boots left, and what came back on a seat that stands also without the run."""
    opened = time.monotonic_ns()
    leftovers = [f"{boot.id}: {left}" for boot in run.outcome.boots for left in boot.leftovers]
    asked, answer, left = came_back(run) if run.manifest.container else ({}, {}, ())
    return Evidence(
        window=window.id,
        boot=_desk(run, window),
        instrument=window.instrument,
        variant=run.plan.variants["incumbent"],
        opened_at=now(),
        opened_ns=opened,
        closed_ns=time.monotonic_ns(),
        facts={"leftovers": [*leftovers, *left], "requested": asked, "resolved": answer},
    )


def came_back(run: Run) -> tuple[Facts, Facts, tuple[str, ...]]:
    """(canonical, found, left behind): the canonical container, started once more and counted, then ended.

    A configuration that does not come up is a difference like any other.
    """
    run.progress.begin("the standing configuration", run.manifest.boot_seconds)
    try:
        with brought_up(run.manifest, run.name) as boot:
            asked, answer = standing_state(run.manifest, boot)
    except SeatError as error:
        return {STANDING: "comes up"}, {STANDING: f"{error.what}: {error.found}"}, ()
    return asked | _of_the_order(run), answer, boot.record.leftovers


def _of_the_order(run: Run) -> Facts:
    """What the order itself says of the state that the seat is left in, as far as it can be counted."""
    restored = run.order.order.restore
    if restored is None:
        return {}
    tokens: Facts = {} if restored.kv_tokens is None else {"kv_tokens": restored.kv_tokens}
    return tokens | {f"{LIVE}{name}": value for name, value in restored.environment.items()}


def _desk(run: Run, window: PlannedWindow) -> str:
    """The desk boot that took the window's boot, or a record of this process, which looked itself."""
    for boot in run.outcome.boots:
        if boot.planned == window.boot:
            return boot.id
    record = new_record(window.boot, label=label_of(run.outcome.boots), pid=os.getpid(), ended="stopped")
    write_record(run, record)
    return record.id
