"""The signed report in the workspace, and the exit code."""

from __future__ import annotations

import shutil
from pathlib import Path

from runner.attest.trust import load_trust
from runner.model.run import RunRecord
from runner.model.verdict import overall
from runner.report import place_folder, write_folder
from runner.steps.journal import TAKEN_IN
from runner.steps.seal import signing_key
from runner.steps.state import Run
from runner.verify import verify

DRAFT = "draft"
"""The report of a bundle in the run's folder, until its verification has passed."""


def report(run: Run) -> int:
    """Write ``reports/<order>/<run>`` unless a run resumed here has it already: 0 pass, 1 fail, 2 undecided."""
    made = RunRecord.model_validate_json((run.folder / "record.json").read_bytes())
    target = run.workspace / "reports" / made.plan.order / made.run
    if not target.exists() and run.journal.of(TAKEN_IN):
        _write_verified(run, made, target)
    elif not target.exists():
        write_folder(made, signing_key(run.workspace), run.folder, target)
    verdict = overall(one.status for one in made.verdicts)
    run.journal.write("reported", verdict=verdict, report=str(target))
    run.progress.note(f"{verdict}: {target}")
    return verdict.exit_code


def _write_verified(run: Run, made: RunRecord, target: Path) -> None:
    """What came from another machine is verified as anybody will before it becomes a report. Raises as ``verify``."""
    draft = run.folder / DRAFT
    shutil.rmtree(draft, ignore_errors=True)
    try:
        write_folder(made, signing_key(run.workspace), run.folder, draft)
        verify(draft, load_trust(run.workspace), run.workspace, deep=True, runs=run.folder.parent)
        place_folder(draft, target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
