"""Whole runs on the fake seat, through the command line: good, faulty, and an engine against itself."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from runner.cli import run
from runner.paths import source_root
from tests.runner.flow_orders import PRIMARY, QUALITY, SPEED, gate_order, kernel_order, write_order

Answer = tuple[int, Any]


def ask(capsys: pytest.CaptureFixture[str], *arguments: str) -> Answer:
    """Exit code and JSON answer of one command."""
    capsys.readouterr()
    code, said = run([*arguments, "--json"]), capsys.readouterr()
    assert said.out, said.err
    return code, json.loads(said.out)


def execute(capsys: pytest.CaptureFixture[str], order: Path) -> tuple[int, dict[str, dict[str, Any]], Path]:
    """Exit code, verdicts by gate, report folder."""
    code, answer = ask(capsys, "execute", str(order))
    return code, {one["gate"].split("@")[0]: one for one in answer["verdicts"]}, Path(answer["report"])


def test_the_fake_order_passes_verifies_and_stands_in_the_canon(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, verdicts, report = execute(capsys, source_root() / "orders" / "fake-lna2.yaml")
    assert {name: one["status"] for name, one in verdicts.items()} == dict.fromkeys(verdicts, "PASS"), verdicts
    assert code == 0
    code, found = ask(capsys, "verify", "--deep", "--require", "pass", str(report))
    assert code == 0
    assert found[0]["label"] == "simulated"
    assert run(["canon"]) == 0
    assert "fake-lna2" in (home / "workspace" / "canon" / "LNA-CANON.md").read_text()
    assert run(["canon", "--check"]) == 0
    assert sum(path.stat().st_size for path in report.iterdir()) <= 300_000
    code, listed = ask(capsys, "status")
    assert [one["state"] for one in listed["runs"]] == ["PASS"]


class Fault(NamedTuple):
    """A candidate that must not pass, and by which gates it is caught."""

    variant: str
    seat: str
    code: int
    gates: dict[str, tuple[str, str]]


FAULTS = [
    Fault("silent-fallback", "fake", 2, {"engaged": ("INVALID", "rank 0"), "kld": ("INVALID", "declined other")}),
    Fault("prefill-only", "fake", 2, {"ppl-decode": ("INVALID", "rows-below-limit"), "kld": ("INVALID", "")}),
    Fault("half-k", "fake", 1, {"engaged": ("PASS", ""), "kld": ("FAIL", "mean KL"), "ppl-decode": ("FAIL", "worse")}),
    Fault("one-rank", "fake-tp2", 2, {"engaged": ("INVALID", "rank 1, model.layers.1.mlp.experts")}),
]


BUSY = re.compile(r"decode took \d+ ns at the client and \d+ ns by /metrics|of the blocks were disturbed")
"""What the gate ``speed`` says of a machine with other work to do."""


def decided(speed: dict[str, Any]) -> bool:
    """Whether the machine was calm enough; where it was not, the gate says that and nothing else."""
    if speed["status"] != "INVALID":
        return True
    assert speed["reasons"] and all(BUSY.search(reason) for reason in speed["reasons"]), speed
    return False


@pytest.mark.parametrize("fault", FAULTS, ids=[fault.variant for fault in FAULTS])
def test_a_faulty_candidate_is_caught(home: Path, capsys: pytest.CaptureFixture[str], fault: Fault) -> None:
    order = write_order(home, kernel_order(fault.variant, seat=fault.seat))
    code, verdicts, report = execute(capsys, order)
    for name, (status, words) in fault.gates.items():
        assert verdicts[name]["status"] == status, verdicts[name]
        assert any(words in reason for reason in verdicts[name]["reasons"]), verdicts[name]
    assert code == fault.code
    assert ask(capsys, "verify", str(report))[0] == 0
    assert ask(capsys, "verify", "--require", "pass", str(report))[0] == fault.code


def test_a_strict_refusal_costs_its_boot_and_is_told(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, verdicts, _ = execute(capsys, write_order(home, kernel_order("silent-fallback", strict=2)))
    assert code == 2
    assert verdicts["engaged"]["status"] in ("INVALID", "NOT_RUN")
    (run_folder,) = (home / "state" / "runs").iterdir()
    record = json.loads((run_folder / "record.json").read_bytes())
    refused = [boot for boot in record["boots"] if boot["ended"] == "refused"]
    assert refused
    assert all("declined" in boot["ended_reason"] for boot in refused)


def test_a_kill_line_stops_the_run(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    late = "  - {name: knock-out, windows: {tokens: 8}}\n"
    text = kernel_order("half-k", gates=QUALITY + late) + "kill_lines:\n  - gate: kld\n"
    code, verdicts, report = execute(capsys, write_order(home, text))
    assert code == 1
    assert verdicts["kld"]["status"] == "FAIL"
    assert verdicts["knock-out"]["status"] == "NOT_RUN"
    assert "kill line kld" in verdicts["knock-out"]["reasons"][0]
    assert run(["verify", str(report)]) == 0


def test_an_engine_against_itself_has_two_equal_arms(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, verdicts, report = execute(capsys, write_order(home, gate_order(tokens=200)))
    if decided(verdicts["speed"]):
        assert verdicts["speed"]["status"] == "PASS", verdicts["speed"]
        assert "SAME" in verdicts["speed"]["reasons"][0]
        assert code == 0
    assert run(["verify", "--deep", str(report)]) == 0


def test_pairs_of_boots_are_measured_and_verified(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every block of every quad in a boot of its own; a busy machine may leave it undecided, nothing else."""
    primary = PRIMARY.format(margin="0.2", pairs=6, tokens=24).replace("pairs: 6", "pairs: 6, pairing: boot")
    text = kernel_order(gates=QUALITY + SPEED).replace("gates:\n", primary + "gates:\n", 1)
    code, verdicts, report = execute(capsys, write_order(home, text))
    speed = verdicts.pop("speed")
    assert {name: one["status"] for name, one in verdicts.items()} == dict.fromkeys(verdicts, "PASS"), verdicts
    if decided(speed):
        assert (speed["status"], code) in (("PASS", 0), ("UNRESOLVED", 2)), speed
        assert " between boots: log-ratio" in speed["reasons"][-1]
    assert ask(capsys, "verify", "--deep", str(report))[0] == 0
    assert sum(path.stat().st_size for path in report.iterdir()) <= 300_000
    (run_folder,) = (home / "state" / "runs").iterdir()
    record = json.loads((run_folder / "record.json").read_bytes())
    blocks = {one["window"]: one for one in record["samples"] if one["window"].startswith("q")}
    assert len(blocks) == len({one["boot"] for one in blocks.values()}) == 24
    for quad in range(1, 7):
        drawn = "".join("IC"[blocks[f"q{quad}-b{block}"]["variant"] == "lna2"] for block in range(1, 5))
        assert drawn in ("ICCI", "CIIC")
