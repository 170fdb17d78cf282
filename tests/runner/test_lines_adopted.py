"""Kill lines of a report when it is to be adopted: what ships off, and what nobody judged."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner import decide
from runner.attest.keys import PrivateKey
from runner.errors import TrustError
from runner.gates.figure_names import FIGURES
from tests.runner.records import make_run, publish
from tests.runner.test_canon import desk

pytestmark = pytest.mark.usefixtures("rate_gate")

SHIPS_OFF = "kill_lines: [{{gate: speed{figure}, action: ship-off}}]\n"


@pytest.fixture
def _ratio(monkeypatch: pytest.MonkeyPatch) -> None:
    """The made-up gate's figure."""
    monkeypatch.setitem(FIGURES, "speed", ("ratio",))


@pytest.mark.usefixtures("_ratio")
def test_what_is_delivered_switched_off_never_stands(
    workspace: Path, demo_runner: PrivateKey, demo_adopter: PrivateKey, tmp_path: Path
) -> None:
    struck = SHIPS_OFF.format(figure=', metric: ratio, op: "<", value: 5')
    publish(workspace, demo_runner, make_run(more=struck), tmp_path / "state")
    told = (workspace / "reports" / "mini-lna2" / "r1" / "report.md").read_text()
    assert "## Kill lines that struck" in told
    assert "| ship-off |" in told
    with pytest.raises(TrustError, match=r"kill line speed ratio < 5 struck: the work is delivered switched off"):
        decide.adopt(desk(workspace, demo_adopter), "r1", "good")
    decide.adopt(desk(workspace, demo_adopter), "r1", "good, and off", descriptive=True)


@pytest.mark.usefixtures("_ratio")
@pytest.mark.parametrize("figure", ["", ', metric: ratio, op: "<", value: 1.5'])
def test_a_line_that_did_not_strike_holds_nothing_up(
    workspace: Path, demo_runner: PrivateKey, demo_adopter: PrivateKey, tmp_path: Path, figure: str
) -> None:
    publish(workspace, demo_runner, make_run(more=SHIPS_OFF.format(figure=figure)), tmp_path / "state")
    assert "Kill lines" not in (workspace / "reports" / "mini-lna2" / "r1" / "report.md").read_text()
    decide.adopt(desk(workspace, demo_adopter), "r1", "good")


def test_a_line_that_no_gate_judged_is_open_for_a_person(
    workspace: Path, demo_runner: PrivateKey, tmp_path: Path
) -> None:
    line = '{metric: decode rate, op: ">=", pass_at: 1000000, kill_at: 900000, unit: tok/s}'
    asked = f"  - {{name: speed, parameters: {{margin_percent: 5}}, measure: {{place: seat, thresholds: [{line}]}}}}\n"
    publish(workspace, demo_runner, make_run(gates=asked), tmp_path / "state")
    told = (workspace / "reports" / "mini-lna2" / "r1" / "report.md").read_text()
    assert "## Lines that no gate judged: open for a person" in told
    assert "1000000 tok/s (kill 900000)" in told
    publish(workspace, demo_runner, make_run(run="r2"), tmp_path / "state")
    assert "open for a person" not in (workspace / "reports" / "mini-lna2" / "r2" / "report.md").read_text()
