"""Gates over a plan and its samples: the same call when a run ends and when a report is verified."""

from __future__ import annotations

from collections.abc import Sequence

from runner.gates.base import GateInput
from runner.gates.registry import Withdrawn, gate, withdrawn
from runner.model.boot import BootRecord
from runner.model.plan import Plan, PlannedGate
from runner.model.report import ReportPredicate
from runner.model.sample import Sample
from runner.model.verdict import Status, Verdict


def given(plan: Plan, planned: PlannedGate, samples: Sequence[Sample], boots: Sequence[BootRecord]) -> GateInput:
    """What one gate may read: its own windows and their samples, and all boots."""
    windows = set(planned.windows)
    return GateInput(
        parameters=planned.parameters,
        planned_boots=plan.boots,
        windows=tuple(window for window in plan.windows if window.id in windows),
        samples=tuple(sample for sample in samples if sample.window in windows),
        boots=tuple(boots),
    )


def judge(plan: Plan, planned: PlannedGate, samples: Sequence[Sample], boots: Sequence[BootRecord]) -> Verdict:
    """The verdict of one gate at its declared version. Raises InputError where this checkout does not have it."""
    return gate(planned.name, planned.version).judge(given(plan, planned, samples, boots))


def not_run(planned: PlannedGate, killed_by: str) -> Verdict:
    """Of a gate whose windows were not measured because a kill line on another gate struck."""
    return Verdict(
        gate=planned.name,
        version=planned.version,
        status=Status.NOT_RUN,
        reasons=(f"kill line {killed_by} stopped the run before its windows were measured",),
    )


def withdrawals(report: ReportPredicate, listed: Sequence[Withdrawn] | None = None) -> dict[str, str]:
    """Graders of the report whose version was withdrawn, ``kind name@version`` to day and reason.

    ``listed`` stands in for this checkout's list of what was withdrawn.
    """
    return {
        f"{each.kind} {each.name}@{each.version}": f"{each.date}, {each.reason}"
        for each in (withdrawn() if listed is None else listed)
        if f"{each.kind}/{each.name}@{each.version}" in report.graders
    }


__all__ = ["given", "judge", "not_run", "withdrawals"]
