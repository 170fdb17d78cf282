"""The seat for this run alone, from its first boot until it stands as it did before."""

from __future__ import annotations

from runner.seat_lock import occupied
from runner.steps.boots import AFTER_BOOTS, boots
from runner.steps.evidence import closed_in
from runner.steps.restore import restore
from runner.steps.state import Run

WAITED = "seat-waited"


def measure(run: Run) -> Run:
    """What is not measured yet, once no other run of this user is on the seat; how long that took is kept."""
    if _measured(run):
        return restore(boots(run))
    with occupied(run.manifest.name, f"run {run.name}", run.progress.note) as seconds:
        if seconds:
            run.journal.write(WAITED, seat=run.manifest.name, seconds=round(seconds))
        return restore(boots(run))


def _measured(run: Run) -> bool:
    last = [window for window in run.plan.windows if window.instrument.startswith(AFTER_BOOTS)]
    ended = all(run.journal.of("boot-ended", planned=boot.id) for boot in run.plan.boots)
    return ended and all(closed_in(run, window.id) for window in last)


__all__ = ["WAITED", "measure"]
