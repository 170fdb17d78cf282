"""Whether a report of an order could be adopted at all: known before any seat time is spent."""

from __future__ import annotations

from runner.assurance import NEEDED, bringing, claiming, possible
from runner.model.order import RunnableOrder, WorkOrder
from runner.model.seat import SeatManifest


def prospect(order: WorkOrder, manifest: SeatManifest | None) -> str:
    """Why the order's report, even where every gate passes, could not be adopted to stand; empty where it could."""
    if manifest is None or not isinstance(order, RunnableOrder):
        return ""
    if manifest.adapter == "fake":
        return "its report can never be adopted: the seat is simulated"
    names = [request.name for request in order.gates]
    found = possible(names, on_a_card=manifest.gpu or manifest.container is not None)
    if claiming(names) and len(found) < NEEDED:
        return (
            f"where {', '.join(claiming(names))} pass, its report can never be adopted: that needs {NEEDED} witnesses "
            f"from outside the engine, and its gates leave it {', '.join(found)} alone (another comes with any of "
            f"{', '.join(bringing(found))})"
        )
    if manifest.adapter == "attach":
        return "its report can only be adopted as descriptive: an attached server is looked at, not started"
    return ""


__all__ = ["prospect"]
