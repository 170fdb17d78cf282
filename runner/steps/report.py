"""The signed report in the workspace, and the exit code."""

from __future__ import annotations

from runner.model.run import RunRecord
from runner.model.verdict import overall
from runner.report import write_folder
from runner.steps.seal import signing_key
from runner.steps.state import Run


def report(run: Run) -> int:
    """Write ``reports/<order>/<run>`` unless a run resumed here has it already: 0 pass, 1 fail, 2 undecided."""
    made = RunRecord.model_validate_json((run.folder / "record.json").read_bytes())
    target = run.workspace / "reports" / made.plan.order / made.run
    if not target.exists():
        write_folder(made, signing_key(run.workspace), run.folder, target)
    verdict = overall(one.status for one in made.verdicts)
    run.journal.write("reported", verdict=verdict, report=str(target))
    run.progress.note(f"{verdict}: {target}")
    return verdict.exit_code
