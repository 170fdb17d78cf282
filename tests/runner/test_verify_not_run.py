"""A gate is NOT_RUN because nothing was sampled or a kill line struck, never because the runner writes so."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.attest.keys import PrivateKey
from runner.errors import TrustError
from runner.gates.base import GateInput, GateParameters
from runner.gates.selftest import must_fail
from runner.model.run import SelfTest
from runner.model.verdict import Figure, Status, Verdict
from tests.runner.records import RateGate, Run, check, make_run, publish

STRUCK = "kill line speed stopped the run before its windows were measured"
SLOWER, FASTER = ("10", "9"), ("10", "20")


class LateGate:
    """Of a window that nobody opened: INVALID."""

    NAME, VERSION, Parameters = "restore", 1, GateParameters

    def judge(self, given: GateInput) -> Verdict:
        return Verdict(gate=self.NAME, version=1, status=Status.INVALID, reasons=("restore: not measured",))


@pytest.fixture
def two_gates(rate_gate: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The made-up run's gate, and one whose window is not measured."""
    monkeypatch.setattr("runner.gates.registry._GATES", (RateGate(), LateGate()))


def stopped(rates: tuple[str, str], kill_lines: tuple[str, ...], line: str, told: Verdict) -> Run:
    """A run whose second gate says ``told``; ``line`` is its order's kill line."""
    gates = "  - {name: speed, parameters: {margin_percent: 5}}\n  - {name: restore}\n"
    run = make_run(rates=rates, kill_lines=kill_lines, gates=gates, more=f"kill_lines:\n  - {line}\n")
    shown = SelfTest(gate="restore", version=1, case=min(must_fail("restore", 1)), status=Status.INVALID)
    changed = {"verdicts": (*run.record.verdicts, told), "self_tests": (*run.record.self_tests, shown)}
    return Run(run.record.model_copy(update=changed), run.files)


def not_run(words: str, *figures: Figure) -> Verdict:
    return Verdict(gate="restore", version=1, status=Status.NOT_RUN, reasons=(words,), figures=figures)


@pytest.mark.usefixtures("two_gates")
@pytest.mark.parametrize(
    ("rates", "line"),
    [(SLOWER, "{gate: speed}"), (FASTER, "{gate: speed, metric: ratio, op: '>', value: '1.5', unit: ratio}")],
)
def test_a_kill_line_that_struck_keeps_a_gate_from_running(
    workspace: Path, demo_runner: PrivateKey, tmp_path: Path, rates: tuple[str, str], line: str
) -> None:
    run = stopped(rates, ("speed",), line, not_run(STRUCK))
    found = check(publish(workspace, demo_runner, run, tmp_path / "state"))
    assert found.gates["restore"] is Status.NOT_RUN


@pytest.mark.usefixtures("two_gates")
@pytest.mark.parametrize(
    ("rates", "kill_lines", "told"),
    [
        (FASTER, ("speed",), not_run(STRUCK)),
        (SLOWER, (), not_run(STRUCK)),
        (SLOWER, ("speed",), not_run(STRUCK.replace("speed", "pack"))),
        (SLOWER, ("restore",), not_run(STRUCK.replace("speed", "restore"))),
        (SLOWER, ("speed",), not_run("three times as fast")),
        (SLOWER, ("speed",), not_run(STRUCK, Figure(name="ratio", value="3.0"))),
    ],
)
def test_a_missing_sample_lets_nobody_say_not_run(
    *,
    workspace: Path,
    demo_runner: PrivateKey,
    tmp_path: Path,
    rates: tuple[str, str],
    kill_lines: tuple[str, ...],
    told: Verdict,
) -> None:
    """What is INVALID nobody may waive, and figures of a gate that did not run would stand in the canon."""
    folder = publish(workspace, demo_runner, stopped(rates, kill_lines, "{gate: speed}", told), tmp_path / "state")
    with pytest.raises(TrustError, match="the verdict does not follow from the samples"):
        check(folder)
