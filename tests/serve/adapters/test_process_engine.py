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
from tests.serve.engine_boot import boot, complete

pytestmark = pytest.mark.engine


def test_strict_2_refuses_a_declining_variant(tmp_path: Path) -> None:
    engine = boot(tmp_path, strict=2, variants=("incumbent", "knock-out-decline"))
    try:
        engine.switch("knock-out-decline")
        with pytest.raises(AssertionError):
            complete(engine, prompt=[5], max_tokens=2)
        limit = time.monotonic() + 15
        while engine.process.poll() is None and time.monotonic() < limit:
            time.sleep(0.1)
        with pytest.raises(SeatError, match="does not answer"):
            engine.counters()
    finally:
        record = engine.stop()
    assert record.ended == "refused"
    assert "variant knock-out-decline declined on rank 0, layer model.layers.1.mlp.experts" in record.ended_reason
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
