"""Two runs never measure on one seat at once."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from runner.attest.trust import load_trust
from runner.cli import run
from runner.errors import StateError
from runner.seat_lock import occupied
from runner.standing import standing
from runner.verify import read_report
from tests.runner.flow_orders import kernel_order, write_order
from tests.runner.test_workflow import ask

HOLDER = """
import sys, time
from runner.seat_lock import occupied
with occupied("fake", "a test"):
    print("held", flush=True)
    time.sleep(600)
"""


def test_a_second_one_is_told_who_is_there(home: Path) -> None:
    with occupied("fake", "run one") as waited:
        assert waited == 0
        with pytest.raises(StateError, match="the seat is in use") as caught, occupied("fake", "run two"):
            pass
        assert caught.value.found.startswith("run one (process ")
        with pytest.raises(StateError, match="the seat is in use"), standing("fake"):
            pass
        with occupied("fake-tp2", "run two"):
            pass


def test_a_killed_holder_leaves_the_seat_free(home: Path) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLDER], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    with pytest.raises(StateError, match="the seat is in use"), occupied("fake", "a run"):
        pass
    holder.send_signal(signal.SIGKILL)
    holder.communicate()
    with occupied("fake", "a run"):
        pass


def test_a_run_waits_for_its_seat_and_says_so_in_the_report(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    order, waits = write_order(home, kernel_order(gates="")), threading.Event()
    holder = subprocess.Popen([sys.executable, "-c", HOLDER], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"

    def asked(path: Path) -> str:
        waits.set()
        return "a test"

    def free() -> None:
        if waits.wait(120):
            time.sleep(1.2)
        holder.kill()

    monkeypatch.setattr("runner.seat_lock._holder", asked)

    thread = threading.Thread(target=free)
    thread.start()
    code, answer = ask(capsys, "execute", str(order))
    thread.join()
    holder.communicate()
    assert code == 0
    _, report, _ = read_report(Path(answer["report"]), load_trust(home / "workspace"))
    waited = report.environment["seconds waited for the seat"]
    assert isinstance(waited, int) and waited >= 1
    assert run(["verify", "--deep", answer["report"]]) == 0
    folder = home / "state" / "runs" / answer["run"]
    events = [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines()]
    assert [event["seat"] for event in events if event["event"] == "seat-waited"] == ["fake"]
