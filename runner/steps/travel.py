"""A seat on another machine is not measured from here: leave the job for it, until its bundle has come back."""

from __future__ import annotations

from runner.away import write_job
from runner.model.verdict import Status
from runner.steps.journal import TAKEN_IN
from runner.steps.state import Run


def travel(run: Run) -> Run | int:
    """The run where it is measured here or its bundle is in; else its job, and the exit code of *could not decide*."""
    if run.journal.of(TAKEN_IN) or not run.manifest.away:
        return run
    job = write_job(run)
    run.progress.note(f"carry {job} to seat {run.manifest.name}, run ./measure there, bring its bundle back")
    run.progress.note(f"then `runner seal {run.name} BUNDLE`; without it the intent shows as ABANDONED")
    return Status.NOT_RUN.exit_code
