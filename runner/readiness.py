"""What stands between a good order and a run: parts that are declared and not there yet. Its plan stays a draft."""

from __future__ import annotations

from pathlib import Path

from runner import ledger
from runner.attest.trust import load_trust
from runner.checks.citations import find_order
from runner.checks.judgement import planned_gates
from runner.craft.candidate import files_of
from runner.errors import SeatError, StateError
from runner.model.order import WorkOrder, load_order
from runner.model.report import ReportPredicate
from runner.model.seat import SeatManifest
from runner.model.verdict import Status
from runner.steps.seats import has_adapter

UNKNOWN = "unknown"
TAKEN = ("kernels/cpu/", "kernels/cuda/", "recipe/patches/")
"""What a run takes from a frozen candidate. The plugin that dispatches is always the checkout's own."""


def missing(order: WorkOrder, manifest: SeatManifest) -> tuple[str, ...]:
    """Everything that is missing, one line each; empty where the order can be executed."""
    found = []
    if not has_adapter(manifest.adapter):
        found.append(f"seat {manifest.name}: this checkout has no {manifest.adapter} adapter")
    if manifest.container is not None and manifest.container.digest == UNKNOWN:
        found.append(f"seat {manifest.name}: digest of image {manifest.container.image} is unknown")
    target = getattr(order, "target", None)
    found += [f"pin {name} is unknown" for name, pin in (target.pins if target else {}).items() if pin == UNKNOWN]
    found += [f"gate {request.name} is planned, not written: {request.planned}" for request in planned_gates(order)]
    found += [
        f"{glob} is taken from no candidate yet: a change of it is judged once it stands in the checkout"
        for glob in files_of(order)
        if not glob.startswith(TAKEN)
    ]
    for request in order.gates:
        lacking = [need for need in (request.measure.needs if request.measure else ()) if need in manifest.lacks]
        if request.planned is None and lacking:
            found.append(f"gate {request.name} needs {', '.join(lacking)}, which seat {manifest.name} lacks")
    return tuple(found)


def require_ready(order: WorkOrder, manifest: SeatManifest) -> None:
    """Raises SeatError (exit code 2) naming everything that is missing."""
    absent = missing(order, manifest)
    if absent:
        raise SeatError(
            f"order {order.id} cannot be executed on seat {manifest.name} yet",
            found="\n    ".join(["", *absent]),
            next_step="`runner plan` shows the draft; a seat and gates that exist make it a run",
        )


def require_finished(order: WorkOrder, workspace: Path) -> None:
    """Raises StateError (exit code 2) naming every order that ``scope.only_after`` waits for.

    An order is finished by a verified report that passes, or by the decision that was recorded when it was carried out
    by hand.
    """
    waits_for = order.scope.only_after if order.scope else ()
    if not waits_for:
        return
    reports = ledger.load(workspace, load_trust(workspace)).of(ReportPredicate)
    passed = {report.order.name for _, report in reports if report.verdict is Status.PASS}
    if open_still := [name for name in waits_for if name not in passed and not _by_hand(name)]:
        raise StateError(
            "another order has to be finished first",
            where=f"{order.id}: scope.only_after",
            expected="a verified report that passes, of each",
            found=f"none of {', '.join(open_still)}",
        )


def _by_hand(name: str) -> bool:
    path = find_order(name)
    result = load_order(path).order.result if path else None
    return result is not None and result.decision is not None


__all__ = ["missing", "require_finished", "require_ready"]
