"""``kill -9`` at every step boundary and at random moments: nothing of ours stays, and ``--resume`` finishes."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from runner.session import open_run
from runner.steps.journal import Journal
from runner.steps.state import Silent
from runner.workflow import STEPS
from runner.workspace import make_workspace
from tests.runner.flow_orders import gate_order, write_order

CLEAN_SECONDS = 10
MOMENTS = 10
KILLED = Path(__file__).parent / "killed_run.py"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace, a state folder and a key of this test alone."""
    make_workspace(tmp_path / "workspace")
    monkeypatch.setenv("CARVE_WORKSPACE", str(tmp_path / "workspace"))
    monkeypatch.setenv("CARVE_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("CARVE_CONFIG", str(tmp_path / "config"))
    return tmp_path


def ours(home: Path) -> list[str]:
    """Processes that work in this test's folders, in words."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if str(home) in words or str(home) in os.readlink(entry / "cwd"):  # noqa: PTH115 (a vanished process)
                found.append(f"{entry.name}: {words[:120]}")
        except OSError:
            continue
    return found


def shared_memory(home: Path) -> list[str]:
    """Segments of fake engines that this test's boots started."""
    pids = [json.loads(path.read_text())["pid"] for path in home.glob("state/runs/*/boots/[!.]*.json")]
    return [f"carve_fake_{pid}" for pid in pids if Path(f"/dev/shm/carve_fake_{pid}").exists()]


def assert_clean(home: Path) -> None:
    deadline = time.monotonic() + CLEAN_SECONDS
    while (left := ours(home) + shared_memory(home)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not left


def only_run(home: Path) -> str:
    (folder,) = (home / "state" / "runs").iterdir()
    return folder.name


def resume(order: Path, run: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "runner.cli", "execute", str(order), "--quiet"]
    return subprocess.Popen(
        [*command, *(["--resume", run] if run else [])], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )


def finished_record(home: Path, run: str) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((home / "state" / "runs" / run / "record.json").read_bytes())
    verify = [sys.executable, "-m", "runner.cli", "verify", "--deep"]
    report = home / "workspace" / "reports" / record["plan"]["order"] / run
    answer = subprocess.run([*verify, str(report)], capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    return record


def assert_no_torn_quad(record: dict[str, Any]) -> None:
    """Four blocks of one boot; that they are in the drawn order is for ``verify`` to say."""
    boots: dict[str, set[str]] = {}
    quads = {
        window["id"]: window["arguments"]["quad"] for window in record["plan"]["windows"] if window["arm"] == "drawn"
    }
    counting = {sample["window"]: sample["boot"] for sample in record["samples"]}  # after what was disturbed
    for window, quad in quads.items():
        boots.setdefault(quad, set()).add(counting[window])
    assert len(boots) == record["plan"]["pairs"]
    assert all(len(found) == 1 for found in boots.values())


def test_kill_at_every_step_boundary(home: Path) -> None:
    order, run = write_order(home, gate_order()), ""
    for count in range(len(STEPS) + 1):
        ended = subprocess.run(
            [sys.executable, str(KILLED), str(order), str(count), *([run] if run else [])], check=False
        )
        last = count == len(STEPS)
        assert ended.returncode in ((0, 1, 2) if last else (-signal.SIGKILL,))
        run = only_run(home)
        assert_clean(home)
    record = finished_record(home, run)
    assert_no_torn_quad(record)
    assert len(list((home / "workspace" / "reports" / "ledger").iterdir())) == 1
    assert {boot["ended"] for boot in record["boots"]} == {"stopped"}


def test_kill_at_random_moments(home: Path) -> None:
    order, run = write_order(home, gate_order()), ""
    moments = random.Random(5)
    for _ in range(MOMENTS):
        process = resume(order, run)
        try:
            process.wait(moments.uniform(0.3, 4.0))
        except subprocess.TimeoutExpired:
            process.kill()
        _, errors = process.communicate()
        assert process.returncode in (-signal.SIGKILL, 0, 1, 2), errors.decode()
        assert_clean(home)
        run = only_run(home) if (home / "state" / "runs").is_dir() else ""
    process = resume(order, run)
    _, errors = process.communicate(timeout=120)
    assert process.returncode in (0, 1, 2), errors.decode()
    record = finished_record(home, run)
    assert_no_torn_quad(record)
    opened = {event.facts["boot"] for event in Journal(home / "state/runs" / run / "journal.jsonl").of("window-opened")}
    kept = {boot["id"]: boot["ended"] for boot in record["boots"]}
    assert opened <= kept.keys()
    assert set(kept.values()) <= {"stopped", "aborted"}


def test_a_changed_order_cannot_be_resumed(home: Path) -> None:
    order = write_order(home, gate_order())
    subprocess.run([sys.executable, str(KILLED), str(order), "3"], check=False)
    run = only_run(home)
    write_order(home, gate_order(margin="0.9"))
    process = resume(order, run)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 2
    assert b"the order has changed since the run was started" in errors


def test_changed_code_cannot_be_resumed_and_says_which(home: Path) -> None:
    order = write_order(home, gate_order())
    subprocess.run([sys.executable, str(KILLED), str(order), "3"], check=False)
    run = only_run(home)
    path = home / "state" / "runs" / run / "plan.json"
    plan = json.loads(path.read_bytes())
    plan["subjects"]["tree.serve"] = "0" * 64
    path.write_text(json.dumps(plan))
    process = resume(order, run)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 2
    assert b"subjects: tree.serve" in errors


def test_two_processes_cannot_work_on_one_run(home: Path) -> None:
    order = write_order(home, gate_order())
    first = open_run(order, progress=Silent())
    process = resume(order, first.name)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 2
    assert b"another process works on this run" in errors


def test_an_unknown_run_is_named(home: Path) -> None:
    process = resume(write_order(home, gate_order()), "20261130-000000-00000000")
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 3
    assert b"no such run" in errors
