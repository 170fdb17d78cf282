"""Ends of a real engine: strict refuses, and kill -9 of the runner leaves nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from runner.errors import SeatError
from tests.serve.engine_boot import boot

pytestmark = pytest.mark.engine


def test_strict_refuses_to_start_with_a_library_that_is_not_ready(tmp_path: Path) -> None:
    with pytest.raises(SeatError) as refusal:
        boot(tmp_path, strict=2, variants=("incumbent", "knock-out-decline"))
    assert refusal.value.found == (
        "carve strict 2: variant knock-out-decline is not ready on rank 0, layer model.layers.1.mlp.experts"
    )


def test_strict_2_ends_the_engine_at_a_decline_that_is_not_allowed(tmp_path: Path) -> None:
    engine = boot(tmp_path, strict=2, variants=("incumbent", "silent-fallback"))
    try:
        engine.switch("silent-fallback")
        body = {"model": "mini", "prompt": [5], "max_tokens": 2}
        assert engine.http.post("/v1/completions", json=body).status_code == 500
        limit = time.monotonic() + 15
        while engine.process.poll() is None and time.monotonic() < limit:
            time.sleep(0.1)
        with pytest.raises(SeatError, match="does not answer"):
            engine.counters()
    finally:
        record = engine.stop()
    assert record.ended == "refused"
    where = "rank 0, layer model.layers.1.mlp.experts, rows 1"
    assert record.ended_reason == f"carve strict 2: variant silent-fallback declined on {where}: shape"
    assert record.leftovers == ()


def test_kill_minus_nine_of_the_runner_leaves_no_engine(tmp_path: Path) -> None:
    script = textwrap.dedent(
        f"""
        import sys, time
        from pathlib import Path
        sys.path.insert(0, {str(Path(__file__).parents[3])!r})
        from tests.serve.engine_boot import boot
        engine = boot(Path({str(tmp_path / "boot")!r}))
        print(engine.record.pid, engine.record.ranks[0].pid, engine.process.temporary, flush=True)
        time.sleep(600)
        """
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as runner:
        assert runner.stdout is not None
        server, worker, temporary = runner.stdout.readline().split()
        os.kill(runner.pid, signal.SIGKILL)
    limit = time.monotonic() + 10
    while time.monotonic() < limit:
        left = [pid for pid in (server, worker) if Path(f"/proc/{pid}").exists()]
        if not left and not Path(temporary).exists():
            return
        time.sleep(0.1)
    pytest.fail(f"after ten seconds: processes {left}, {temporary} exists: {Path(temporary).exists()}")
