"""``kill -9`` of a run on the real engine: while it starts, inside a window, and between two boots."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from tests.runner.flow_orders import engine_order, write_order
from tests.runner.kills import assert_clean, events, finished_record, kill, only_run, run_until, start, wait_until

pytestmark = pytest.mark.engine

START_SECONDS = 3
"""After which the engine has begun to load and is far from ready."""


def test_kill_during_start_inside_a_window_and_between_boots(home: Path) -> None:
    order = write_order(home, engine_order())

    runner = start(order)
    wait_until(lambda: bool(events(home, "boot-started")))
    time.sleep(START_SECONDS)
    traces = kill(runner)
    run = only_run(home)
    assert traces.ports
    assert not list((home / "state" / "runs" / run / "boots").glob("*.json")), "the engine was up already"
    assert_clean(home, traces)

    runner = start(order, run)
    wait_until(lambda: any(event["window"] == "finish" for event in events(home, "window-opened")))
    time.sleep(0.5)
    traces = kill(runner)
    assert traces.ports
    assert traces.shared
    assert not any(event["window"] == "finish" for event in events(home, "window-closed")), "the window was over"
    assert_clean(home, traces)

    assert run_until("boot-ended", order, run) == -signal.SIGKILL
    assert_clean(home)

    runner = start(order, run)
    _, errors = runner.communicate(timeout=120)
    assert runner.returncode == 0, errors.decode()
    record = finished_record(home, run)
    assert [(boot["planned"], boot["ended"]) for boot in record["boots"]] == [
        ("shared-a", "aborted"),
        ("shared-a", "stopped"),
        ("forcing", "stopped"),
        ("one-row", "stopped"),
        ("desk", "stopped"),
    ]
    assert {verdict["gate"]: verdict["status"] for verdict in record["verdicts"]} == dict.fromkeys(
        ("resolved", "finish", "ppl-decode", "restore"), "PASS"
    )
