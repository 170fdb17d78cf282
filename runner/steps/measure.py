"""The seat for this run alone while its boots last."""

from __future__ import annotations

from runner.seat_lock import occupied
from runner.steps.boots import boots
from runner.steps.state import Run

WAITED = "seat-waited"


def measure(run: Run) -> Run:
    """The boots not measured yet, once no other run of this user is on the seat; how long that took is kept."""
    if all(run.journal.of("boot-ended", planned=boot.id) for boot in run.plan.boots):
        return boots(run)
    with occupied(run.manifest.name, f"run {run.name}", run.progress.note) as seconds:
        if seconds:
            run.journal.write(WAITED, seat=run.manifest.name, seconds=round(seconds))
        return boots(run)


__all__ = ["WAITED", "measure"]
