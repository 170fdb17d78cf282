"""Lines of a gate in words, the same in plan and brief."""

from __future__ import annotations

from runner.model.order.measure import Threshold


def line_of(threshold: Threshold) -> str:
    """``dense segment >= 1.2 ratio (kill 1.15, stretch 1.35; K2, 4 rows)``."""
    sealed = threshold.pass_at or threshold.kill_at or threshold.stretch_at or "not decided"
    notes = []
    if threshold.pass_at and threshold.kill_at:
        notes.append(f"kill {threshold.kill_at}")
    if threshold.stretch_at and sealed != threshold.stretch_at:
        notes.append(f"stretch {threshold.stretch_at}")
    if threshold.where:
        notes.append(threshold.where)
    return f"{threshold.metric} {threshold.op} {sealed} {threshold.unit}" + (f" ({'; '.join(notes)})" if notes else "")


__all__ = ["line_of"]
