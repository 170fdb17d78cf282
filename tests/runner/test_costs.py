"""Seat time is divided without losing or inventing a second."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from runner.costs import costs, owners
from runner.model.plan import PlannedGate
from tests.runner.records import make_run

RUN = make_run().record
WINDOWS = [window.id for window in RUN.plan.windows]
EVERY = PlannedGate(name="engaged", version=1, windows=tuple(WINDOWS), parameters={})
FEW = PlannedGate(name="needle", version=1, windows=tuple(WINDOWS[:4]), parameters={})
PLAN = RUN.plan.model_copy(update={"gates": (EVERY, FEW)})


def test_the_gate_that_reads_least_pays() -> None:
    assert set(owners(PLAN).values()) == {"engaged", "needle"}
    assert [owners(PLAN)[window] for window in WINDOWS[3:5]] == ["needle", "engaged"]


def test_a_window_costs_its_gate_and_the_rest_its_boot() -> None:
    boot = RUN.boots[0].model_copy(update={"seconds": 30})
    spent = costs(PLAN, [boot], [(WINDOWS[0], boot.id, 4 * 10**9), (WINDOWS[9], boot.id, 7_900_000_000)])
    assert {cost.what: cost.seconds for cost in spent} == {"gate engaged": 7, "gate needle": 4, "boot shared-1": 19}


@given(st.lists(st.tuples(st.sampled_from(WINDOWS), st.integers(0, 10**11)), max_size=30), st.integers(0, 300))
def test_together_they_are_the_boots(windows: list[tuple[str, int]], seconds: int) -> None:
    boot = RUN.boots[0].model_copy(update={"seconds": seconds})
    measured = [(window, boot.id, nanoseconds) for window, nanoseconds in windows]
    found = costs(PLAN, [boot], [*measured, ("unknown", boot.id, 10**9), (WINDOWS[0], "another", 10**9)])
    assert sum(cost.seconds for cost in found) == seconds
    assert min(cost.seconds for cost in found) >= 0
