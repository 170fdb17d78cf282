"""Verdicts from samples."""

from __future__ import annotations

from runner.judge import judge as judge_gate
from runner.judge import not_run
from runner.kill_lines import struck as strikes_one
from runner.model.plan import PlannedGate
from runner.model.verdict import Verdict
from runner.steps.state import Run


def judge(run: Run) -> Run:
    """Every gate of the plan; after a kill line struck, gates with windows that were never opened are NOT_RUN."""
    verdicts = tuple(_one(run, planned) for planned in run.plan.gates)
    for verdict in verdicts:
        run.progress.note(f"{verdict.gate}@{verdict.version}: {verdict.status} {'; '.join(verdict.reasons[:1])}")
    return run.with_outcome(verdicts=verdicts)


def _one(run: Run, planned: PlannedGate) -> Verdict:
    outcome = run.outcome
    if outcome.killed_by and not {sample.window for sample in outcome.samples}.issuperset(planned.windows):
        return not_run(planned, outcome.killed_by)
    return judge_gate(run.plan, planned, outcome.samples, outcome.boots)


def struck(run: Run) -> str:
    """The first gate that has all its windows and on which a kill line strikes; empty for none."""
    measured = {sample.window for sample in run.outcome.samples}
    for planned in run.plan.gates:
        if planned.name in run.plan.kill_lines and measured.issuperset(planned.windows):
            verdict = judge_gate(run.plan, planned, run.outcome.samples, run.outcome.boots)
            if strikes_one(run.order.order.kill_lines, planned.name, verdict.status, verdict.figures):
                return planned.name
    return ""
