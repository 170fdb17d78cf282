"""What stands between a good order and a run: parts that are declared and not there yet. Its plan stays a draft."""

from __future__ import annotations

from runner.checks.judgement import planned_gates
from runner.errors import SeatError
from runner.model.order import WorkOrder
from runner.model.seat import SeatManifest
from runner.steps.seats import has_adapter

UNKNOWN = "unknown"


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


__all__ = ["missing", "require_ready"]
