"""Standing seats, the progress that a person sees, and wrong usage."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from itertools import takewhile
from pathlib import Path

import httpx
import pytest

from runner import ledger
from runner.attest.trust import load_trust
from runner.cli import run
from runner.commands.progress import watching
from runner.model.adoption import Observation
from runner.steps.seats import seat_names
from tests.runner.flow_orders import kernel_order, write_order


def test_every_seat_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["seat", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(seat_names())


def test_a_readback_tells_what_answered(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["seat", "readback", "fake-tp2", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["label"] == "simulated"
    assert record["canary"]
    assert [rank["rank"] for rank in record["ranks"]] == [0, 1]
    assert not Path(f"/proc/{record['pid']}").exists()


def test_a_readback_in_words(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["seat", "readback", "fake"]) == 0
    assert "label: simulated" in capsys.readouterr().out.splitlines()


def test_a_recorded_readback_is_what_later_reports_are_compared_with(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["seat", "readback", "fake", "--record", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    workspace = home / "workspace"
    ((_, seen),) = ledger.load(workspace, load_trust(workspace)).of(Observation)
    assert Path(told["observation"]).parent == workspace / ledger.OBSERVATIONS
    assert (seen.seat, seen.label, seen.resolved) == ("fake", "simulated", told["resolved"])
    assert {"engine.record", "tree.runner"} <= seen.subjects.keys()


def test_an_unknown_seat_is_refused_with_the_known_ones(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["seat", "up", "moon"]) == 3
    assert "fake, fake-tp2" in capsys.readouterr().err


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_a_seat_stands_until_it_is_interrupted(home: Path, end: signal.Signals) -> None:
    # Through a shell's background, where interrupts are ignored from the start.
    command = f"exec {sys.executable} -m runner.cli seat up fake --json"
    ignored = ["sh", "-c", f"trap '' INT; {command}"]
    with subprocess.Popen(ignored, stdout=subprocess.PIPE, text=True) as standing:
        assert standing.stdout is not None
        try:
            lines = iter(standing.stdout.readline, "")  # ends with the process, also where it says nothing
            told = json.loads("".join(takewhile(lambda line: line != "}\n", lines)) + "}")
            assert httpx.get(f"{told['url']}/health", timeout=120).status_code == 200
            standing.send_signal(end)
            standing.wait(timeout=120)
        finally:
            standing.kill()
    assert standing.returncode == 0
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{told['url']}/health", timeout=120)


def test_a_run_shows_where_it_is(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["execute", str(write_order(home, kernel_order(gates="")))]) == 0
    answer = capsys.readouterr()
    (folder,) = (home / "state" / "runs").iterdir()
    assert f"run {folder.name} in" in answer.err
    assert answer.out.splitlines()[-1] == f"report: {home}/workspace/reports/small-lna2/{folder.name}"


def test_progress_goes_on_and_keeps_its_notes(capsys: pytest.CaptureFixture[str]) -> None:
    with watching(quiet=False) as progress:
        progress.expect(10)
        progress.begin("one", 4)
        progress.begin("[two]", 6)
        progress.note("[kept] as it is")
    assert "[kept] as it is" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "help_of"),
    [(["execute"], "runner execute"), (["seat", "up"], "runner seat up"), (["nonsense"], "runner")],
)
def test_wrong_usage_names_the_help_that_is_meant(
    capsys: pytest.CaptureFixture[str], arguments: list[str], help_of: str
) -> None:
    assert run([*arguments, "--json"]) == 3
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["next_step"] == f"`{help_of} --help`"


@pytest.mark.parametrize("group", [[], ["seat"], ["keys"]])
def test_a_group_without_a_command_shows_its_help(capsys: pytest.CaptureFixture[str], group: list[str]) -> None:
    assert run(group) == 3
    assert capsys.readouterr().err.startswith("Usage: runner")
