"""Whether other processes that can be seen disturbed a window, or work that nobody can name."""

from __future__ import annotations

from runner.model.evidence import Evidence
from serve.instruments.machine import disturbed


def disturbed_by_others(evidence: Evidence) -> bool:
    """Whether the visible foreign processes alone went over the seat's limit.

    False where only stolen time or unexplained work did, where the state was not read, and for evidence from before
    foreign time was kept.
    """
    if any(state.foreign_ticks is None for state in evidence.machine):
        return False
    return bool(disturbed(_with_foreign(evidence, 1))) and not disturbed(_with_foreign(evidence, 0))


def _with_foreign(evidence: Evidence, times: int) -> Evidence:
    """The same window as if nothing but our own work and so many times the known foreign work had been done."""
    states = tuple(
        state.model_copy(
            update={"steal_ticks": 0, "busy_ticks": state.own_ticks + times * (state.foreign_ticks or 0)},
        )
        for state in evidence.machine
    )
    return evidence.model_copy(update={"machine": states})
