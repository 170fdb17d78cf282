"""``kill -9`` of a run on the real engine: while it starts, inside a window, and between two boots."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.runner.flow_orders import engine_order, write_order
from tests.runner.kills import (
    assert_clean,
    events,
    finished_record,
    kill,
    only_run,
    run_until,
    start,
    traces_of,
    wait_until,
)

pytestmark = pytest.mark.engine


def test_kill_during_start_inside_a_window_and_between_boots(home: Path) -> None:
    order = write_order(home, engine_order())

    runner = start(order)
    wait_until(lambda: bool(traces_of(runner.pid).ports))
    traces = kill(runner)
    run = only_run(home)
    assert traces.ports
    assert_clean(home, traces)

    runner = start(order, run)
    wait_until(lambda: any(event["window"] == "finish" for event in events(home, "window-opened")))
    traces = kill(runner)
    assert traces.ports
    assert traces.shared
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
