"""``kill -9`` at every step boundary and at random moments: nothing of ours stays, and ``--resume`` finishes."""

from __future__ import annotations

import json
import random
import signal
import subprocess
from pathlib import Path
from typing import Any

from runner.session import open_run
from runner.steps.journal import Journal
from runner.steps.state import Silent
from runner.workflow import STEPS
from tests.runner.flow_orders import gate_order, write_order
from tests.runner.kills import assert_clean, finished_record, only_run, run_until, start

MOMENTS = 10


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
        ended = run_until(str(count), order, run)
        last = count == len(STEPS)
        assert ended in ((0, 1, 2) if last else (-signal.SIGKILL,))
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
        process = start(order, run)
        try:
            process.wait(moments.uniform(0.3, 4.0))
        except subprocess.TimeoutExpired:
            process.kill()
        _, errors = process.communicate()
        assert process.returncode in (-signal.SIGKILL, 0, 1, 2), errors.decode()
        assert_clean(home)
        run = only_run(home) if (home / "state" / "runs").is_dir() else ""
    process = start(order, run)
    _, errors = process.communicate(timeout=120)
    assert errors == b"", "a run that is finished says nothing, whatever its verdict"
    assert process.returncode in (0, 1, 2)
    record = finished_record(home, run)
    assert_no_torn_quad(record)
    opened = {event.facts["boot"] for event in Journal(home / "state/runs" / run / "journal.jsonl").of("window-opened")}
    kept = {boot["id"]: boot["ended"] for boot in record["boots"]}
    assert opened <= kept.keys()
    assert set(kept.values()) <= {"stopped", "aborted"}


def test_a_changed_order_cannot_be_resumed(home: Path) -> None:
    order = write_order(home, gate_order())
    run_until("4", order)
    run = only_run(home)
    write_order(home, gate_order(margin="0.9"))
    process = start(order, run)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 2
    assert b"the order has changed since the run was started" in errors


def test_changed_code_cannot_be_resumed_and_says_which(home: Path) -> None:
    order = write_order(home, gate_order())
    run_until("4", order)
    run = only_run(home)
    path = home / "state" / "runs" / run / "plan.json"
    plan = json.loads(path.read_bytes())
    plan["subjects"]["tree.serve"] = "0" * 64
    path.write_text(json.dumps(plan))
    process = start(order, run)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 2
    assert b"subjects: tree.serve" in errors


def test_two_processes_cannot_work_on_one_run(home: Path) -> None:
    order = write_order(home, gate_order())
    first = open_run(order, progress=Silent())
    process = start(order, first.name)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 2
    assert b"another process works on this run" in errors


def test_an_unknown_run_is_named(home: Path) -> None:
    process = start(write_order(home, gate_order()), "20261130-000000-00000000")
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 3
    assert b"no such run" in errors
