"""Running a report's sealed plan again with a new seed, and signing what came of it."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from runner import ledger
from runner.attest.statement import sign
from runner.attest.trust import load_trust
from runner.clock import now
from runner.errors import StateError, TrustError
from runner.ledger import LEDGER
from runner.measured import unpack
from runner.model.adoption import ReportName, Reproduction
from runner.model.plan import Plan
from runner.model.report import ReportPredicate
from runner.plan import compile_plan
from runner.reproduction import common, shape
from runner.session import open_run, release
from runner.steps.make import make
from runner.steps.seal import changed_parts, signing_key
from runner.steps.state import Progress, Run
from runner.verify import read_report, verify
from runner.workflow import STEPS, Step, execute


@dataclass(frozen=True)
class Again:
    """What a reproduction came to."""

    run: str
    exit_code: int
    statement: Path
    agrees: bool


def reproduce(workspace: Path, name: str, progress: Progress) -> Again:
    """Run the plan of report ``name`` again on its seat and sign the comparison with this user's key.

    Raises TrustError for a report that does not verify or that this very key signed, StateError where the plan that
    would be sealed here is another, else as a run does.
    """
    trust, key = load_trust(workspace), signing_key(workspace)
    folder = ledger.find_report(workspace, name)
    verify(folder, trust, workspace)
    entry, report, _ = read_report(folder, trust)
    if key.public.id in entry.keys:
        raise TrustError(
            "the key that signed a report cannot reproduce it",
            where=entry.where,
            expected="another runner's key",
            found=key.public.id,
            next_step="run this as another person or on another machine (CARVE_CONFIG names where keys lie)",
        )
    sealed = unpack(report.record, entry.where)[0].plan
    with tempfile.TemporaryDirectory(prefix="carve-reproduce-") as scratch:
        order = Path(scratch) / "order.yaml"
        order.write_text(report.order.text, encoding="utf-8")
        run = open_run(order, seat=report.seat.name, progress=progress)
    progress.note(f"run {run.name} in {run.folder}")
    try:
        code = execute(run, _steps(sealed))
    finally:
        release(run)
    made = workspace / "reports" / report.order.name / run.name
    again, second, _ = read_report(made, load_trust(workspace))
    claim = Reproduction(
        created_at=now(),
        parents=ledger.load(workspace, load_trust(workspace)).heads(),
        report=ReportName(run=report.run, order=report.order.name, digest=entry.digest),
        again=ReportName(run=run.name, order=second.order.name, digest=again.digest),
        plan=shape(sealed),
    )
    path = ledger.append(workspace, LEDGER, sign(claim, {"report": entry.digest, "again": again.digest}, key))
    return Again(run.name, code, path, _verdicts(report) == _verdicts(second))


def _steps(sealed: Plan) -> tuple[Step, ...]:
    """A run's steps, with the comparison of plans before anything is announced."""

    def same_plan(run: Run) -> Run:
        planned = compile_plan(run.order, run.manifest, run.built.subjects, sealed.seed_commitment)
        if changed := changed_parts(common(sealed), common(planned)):
            raise StateError(
                "the plan that would be sealed here is not the report's",
                where=sealed.order,
                expected=shape(sealed),
                found=", ".join(changed),
                next_step="check out the commit that the report was made with, and serve on the same seat",
            )
        return run

    at = STEPS.index(make) + 1
    return (*STEPS[:at], same_plan, *STEPS[at:])


def _verdicts(report: ReportPredicate) -> dict[str, str]:
    return {gate.name: gate.verdict for gate in report.gates}


__all__ = ["Again", "reproduce"]
