"""No gate judges a run before it was seen to refuse a case."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from runner.errors import EvidenceError
from runner.gates import selftest
from runner.model.verdict import Status
from runner.steps import self_test as step
from runner.steps.state import Run


def run_of(*names: str) -> Run:
    """As much of a run as the step reads: the planned gates, and where outcomes go."""
    gates = tuple(SimpleNamespace(name=name, version=1) for name in names)

    def with_outcome(**outcome: Any) -> SimpleNamespace:
        return SimpleNamespace(outcome=outcome)

    return cast("Run", SimpleNamespace(plan=SimpleNamespace(gates=gates), with_outcome=with_outcome))


def test_each_gate_is_shown_its_own_case() -> None:
    shown = cast("Any", step.self_test(run_of("restore", "speed"))).outcome["self_tests"]
    assert [one.gate for one in shown] == ["restore", "speed"]
    assert all(one.case.endswith("_fail") and one.status is not Status.PASS for one in shown)


def test_a_gate_that_passes_its_case_stops_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = next((selftest.CASES / "restore").glob("*_pass"))
    shutil.copytree(good, tmp_path / "restore" / "good-in-truth_fail")
    monkeypatch.setattr(selftest, "CASES", tmp_path)
    with pytest.raises(EvidenceError, match="passes a case it must fail"):
        step.self_test(run_of("restore"))


def test_a_gate_without_a_case_stops_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selftest, "CASES", tmp_path)
    with pytest.raises(EvidenceError, match="no case that must fail"):
        step.self_test(run_of("restore"))
