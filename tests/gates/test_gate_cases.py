"""Every gate against its cases. A case is a folder; nothing here knows a single one of them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from runner.errors import EvidenceError
from runner.gates import registry, selftest
from runner.gates.base import Gate, GateInput
from runner.model.base import decimal_text
from runner.model.sample import Sample
from runner.model.verdict import Status

FOLDER = Path(__file__).resolve().parent
CASES = sorted(path.parent for path in FOLDER.glob("*/*/input.json"))


def name_of(case: Path) -> str:
    return f"{case.parent.name}/{case.name}"


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_case(case: Path) -> None:
    expected = yaml.safe_load((case / "expect.yaml").read_text(encoding="utf-8"))
    name, _, version = case.parent.name.partition("@")
    verdict = registry.gate(name, int(version or 1)).judge(
        GateInput.model_validate_json((case / "input.json").read_bytes())
    )
    assert verdict.status == expected["status"], verdict.reasons
    assert any(expected["reason"] in reason for reason in verdict.reasons), verdict.reasons
    limits = {figure.name: figure.limit for figure in verdict.figures}
    assert limits.items() >= expected.get("figures", {}).items()
    ending = case.name.rpartition("_")[2]
    assert (verdict.status is Status.PASS) == (ending == "pass")
    assert ending != "invalid" or verdict.status in (Status.INVALID, Status.NOT_RUN)


@pytest.mark.parametrize("gate", registry.all_gates(), ids=lambda gate: f"{gate.NAME}@{gate.VERSION}")
def test_every_gate_brings_its_cases(gate: Gate) -> None:
    own = selftest.folder_of(gate.NAME, gate.VERSION)
    endings = [case.name.rpartition("_")[2] for case in CASES if case.parent.name == own]
    assert endings.count("fail") >= 3
    assert endings.count("pass") >= 1
    assert endings.count("invalid") >= 1


@pytest.mark.parametrize("gate", registry.all_gates(), ids=lambda gate: f"{gate.NAME}@{gate.VERSION}")
def test_the_self_test_feeds_a_case_that_is_not_passed(gate: Gate) -> None:
    told = selftest.run(gate, FOLDER)
    assert told.case.endswith("_fail")
    assert told.status is not Status.PASS


def test_a_gate_without_a_case_cannot_be_self_tested(tmp_path: Path) -> None:
    gate = registry.all_gates()[0]
    with pytest.raises(EvidenceError, match="no case that must fail"):
        selftest.run(gate, tmp_path)
    broken = tmp_path / gate.NAME / "torn_fail"
    broken.mkdir(parents=True)
    (broken / "input.json").write_text("{")
    with pytest.raises(EvidenceError, match="cannot be read"):
        selftest.run(gate, tmp_path)


def test_the_committed_cases_are_what_the_script_writes(tmp_path: Path) -> None:
    root = FOLDER.parent.parent
    subprocess.run([sys.executable, "-m", "tests.gates.make_cases", str(tmp_path)], cwd=root, check=True, timeout=120)
    written = sorted(path.relative_to(tmp_path) for path in tmp_path.glob("*/*/*"))
    committed = sorted(path.relative_to(FOLDER) for path in FOLDER.glob("*/*/*") if path.is_file())
    assert written == committed
    assert [path for path in written if (tmp_path / path).read_bytes() != (FOLDER / path).read_bytes()] == []


@pytest.mark.parametrize("gate", registry.all_gates(), ids=lambda gate: f"{gate.NAME}@{gate.VERSION}")
def test_no_figure_is_too_large_for_a_verdict(gate: Gate) -> None:
    """A candidate that breaks everything gets its verdict too: each decimal of a passing case a thousandfold."""
    for case in CASES:
        if case.parent.name != selftest.folder_of(gate.NAME, gate.VERSION) or not case.name.endswith("_pass"):
            continue
        given = GateInput.model_validate_json((case / "input.json").read_bytes())
        for times in (1e3, 1e9):
            verdict = gate.judge(
                given.model_copy(update={"samples": tuple(_larger(one, times) for one in given.samples)})
            )
            assert verdict.reasons


def _larger(sample: Sample, times: float) -> Sample:
    data = sample.model_dump(mode="json")
    if sample.variant == "incumbent":
        return sample
    return Sample.model_validate_json(json.dumps(data | {"measure": _scaled(data["measure"], times)}))


def _scaled(value: Any, times: float) -> Any:
    if isinstance(value, dict):
        return {name: _scaled(one, times) for name, one in value.items()}
    if isinstance(value, list):
        return [_scaled(one, times) for one in value]
    if isinstance(value, str) and re.fullmatch(r"-?[0-9]+\.[0-9]+(e-?[0-9]+)?", value):
        return decimal_text(float(value) * times)
    return value


@pytest.mark.parametrize("name", ["kld", "ppl-prefill", "ppl-decode"])
def test_the_first_version_does_not_see_what_the_second_was_made_for(name: str) -> None:
    """A language of 96 documents that is ruined lies inside what the interval of one median leaves out."""
    case = FOLDER / f"{name}@2" / "one-language-of-96-ruined_fail" / "input.json"
    given = GateInput.model_validate_json(case.read_bytes())
    found = {version: registry.gate(name, version).judge(given).status for version in (1, 2)}
    assert found == {1: Status.PASS, 2: Status.FAIL}


@pytest.mark.parametrize(
    ("name", "case", "second"),
    [
        ("memory", "nothing-was-predicted_invalid", Status.INVALID),
        ("rank-skew", "one-of-two-ranks-is-slow_fail", Status.FAIL),
        ("rank-skew", "one-rank_invalid", Status.INVALID),
    ],
)
def test_the_first_version_passes_what_was_not_predicted_or_compared(name: str, case: str, second: Status) -> None:
    given = GateInput.model_validate_json((FOLDER / f"{name}@2" / case / "input.json").read_bytes())
    found = {version: registry.gate(name, version).judge(given).status for version in (1, 2)}
    assert found == {1: Status.PASS, 2: second}
