"""Kill lines, with and without a figure of their own."""

from __future__ import annotations

import pytest

from runner.kill_lines import strikes, struck
from runner.model.order import KillLine
from runner.model.verdict import Figure, Status

BARE = KillLine(gate="parity")
SEGMENT = KillLine(gate="dense-segment", metric="off over on", op="<", value="1.05", unit="ratio")


def figure(value: str) -> tuple[Figure, ...]:
    return (Figure(name="off over on", value=value), Figure(name="launches", value="345"))


@pytest.mark.parametrize(
    ("status", "stops"),
    [
        (Status.PASS, False),
        (Status.FAIL, True),
        (Status.INVALID, True),
        (Status.UNRESOLVED, False),
        (Status.NOT_RUN, False),
    ],
)
def test_a_bare_line_strikes_where_its_gate_refuses(status: Status, stops: bool) -> None:
    assert strikes(BARE, status, ()) is stops


@pytest.mark.parametrize(
    ("status", "value", "stops"),
    [
        (Status.FAIL, "1.049", True),
        (Status.FAIL, "1.05", False),  # failed, and not killed: the room between the two lines
        (Status.PASS, "1.2134", False),
        (Status.INVALID, "1.2134", True),
        (Status.NOT_RUN, "1.0", False),
    ],
)
def test_a_line_with_a_figure_strikes_where_the_figure_lies(status: Status, value: str, stops: bool) -> None:
    assert strikes(SEGMENT, status, figure(value)) is stops


def test_a_figure_that_is_not_there_strikes() -> None:
    assert strikes(SEGMENT, Status.PASS, ())


def test_a_figure_that_is_no_number_strikes() -> None:
    assert strikes(SEGMENT, Status.PASS, (Figure(name="off over on", value="none"),))


def test_other_actions_and_other_gates_stop_nothing() -> None:
    recorded = SEGMENT.model_copy(update={"action": "record"})
    assert not struck((recorded,), "dense-segment", Status.FAIL, figure("1.0"))
    assert strikes(recorded, Status.FAIL, figure("1.0")), "it strikes, and stops nothing"
    assert not struck((BARE, SEGMENT), "needle", Status.FAIL, ())
    assert struck((BARE, SEGMENT), "parity", Status.FAIL, ())
