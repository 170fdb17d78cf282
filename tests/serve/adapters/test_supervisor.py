"""The supervisor with real process trees: every way of ending leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from runner.errors import SeatError
from serve.adapters.supervisor import Supervised, free_port

TREE = textwrap.dedent(
    """
    import json, os, signal, socket, subprocess, sys, time
    from multiprocessing import shared_memory
    from pathlib import Path
    stubborn, port, facts = sys.argv[1] == "stubborn", int(sys.argv[2]), Path(sys.argv[3])
    if stubborn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    memory = shared_memory.SharedMemory(create=True, size=4096)
    listener = socket.create_server(("127.0.0.1", port))
    # A grandchild in a session of its own: no process group reaches it.
    worker = subprocess.Popen(
        [sys.executable, "-c", "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"],
        start_new_session=True)
    Path(os.environ["TMPDIR"], "vllm_dist_1234abcd").touch()
    Path("/dev/shm/vllm_dist_1234abcd-" + str(os.getpid())).touch()
    print("environment", json.dumps(dict(os.environ)), flush=True)
    ready = facts.with_suffix(".partial")
    ready.write_text(json.dumps({"worker": worker.pid, "shared": memory.name.lstrip("/"), "pid": os.getpid()}))
    ready.rename(facts)
    time.sleep(600)
    """
)


def _until(condition: Callable[[], bool], seconds: float = 60.0) -> bool:
    limit = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > limit:
            return False
        time.sleep(0.05)
    return True


def _gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] in "ZX"
    except FileNotFoundError:
        return True


def _tree(folder: Path, kind: str, port: int) -> list[str]:
    script = folder / "tree.py"
    script.write_text(TREE)
    return [sys.executable, "-P", str(script), kind, str(port), str(folder / "facts.json")]


def _facts(folder: Path) -> dict[str, object]:
    path = folder / "facts.json"
    assert _until(path.exists), (folder / "boot/engine.log").read_text()
    return dict(json.loads(path.read_text()))


def _assert_clean(facts: dict[str, object], temporary: Path) -> None:
    assert _gone(int(str(facts["pid"])))
    assert _gone(int(str(facts["worker"])))
    assert not Path("/dev/shm", str(facts["shared"])).exists()
    assert not Path(f"/dev/shm/vllm_dist_1234abcd-{facts['pid']}").exists()
    assert not temporary.exists()


def test_environment_is_exactly_the_declared_one(tmp_path: Path) -> None:
    argv = [sys.executable, "-P", "-c", "import json, os; print(json.dumps(dict(os.environ)))"]
    running = Supervised.start(argv, {"DECLARED": "1", "LC_ALL": "C.UTF-8"}, tmp_path / "boot")
    assert _until(lambda: running.poll() is not None)
    assert running.poll() == 0
    seen = json.loads(running.text())
    assert set(seen) == {"DECLARED", "LC_ALL", "PATH", "HOME", "TMPDIR"}
    assert seen["HOME"] == str(tmp_path / "boot/home")
    assert len(seen["TMPDIR"]) < 30
    assert running.stop() == ()
    assert not Path(seen["TMPDIR"]).exists()


@pytest.mark.parametrize("kind", ["polite", "stubborn"])
def test_stop_ends_the_whole_tree(tmp_path: Path, kind: str) -> None:
    port = free_port()
    running = Supervised.start(_tree(tmp_path, kind, port), {}, tmp_path / "boot", port=port, grace=4.0)
    facts = _facts(tmp_path)
    assert running.poll() is None
    assert running.stop() == ()
    assert f"process {facts['worker']}" in running.forced, "the worker ignores SIGTERM and must have been killed"
    assert (f"process {facts['pid']}" in running.forced) == (kind == "stubborn")
    assert running.stop() == ()
    _assert_clean(facts, running.temporary)


def test_what_others_own_is_not_touched(tmp_path: Path) -> None:
    foreign = Path(f"/dev/shm/psm_foreign_{os.getpid()}")
    foreign.touch()
    try:
        running = Supervised.start([sys.executable, "-c", "import time; time.sleep(600)"], {}, tmp_path)
        assert running.stop() == ()
        assert foreign.exists()
    finally:
        foreign.unlink()


def test_command_that_ends_by_itself_takes_its_orphans_with_it(tmp_path: Path) -> None:
    script = (
        "import subprocess, sys; print(subprocess.Popen(['sleep', '600'], start_new_session=True).pid); sys.exit(3)"
    )
    running = Supervised.start([sys.executable, "-c", script], {}, tmp_path)
    assert _until(lambda: running.poll() is not None)
    assert running.poll() == 3
    assert _gone(int(running.text()))


def test_missing_command_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SeatError, match="could not be started"):
        Supervised.start(["/nonexistent/engine"], {}, tmp_path)


@pytest.mark.parametrize("victim", ["runner", "watchdog"])
def test_kill_minus_nine_leaves_nothing(tmp_path: Path, victim: str) -> None:
    """The runner is a process of its own here, so that it can be killed."""
    port = free_port()
    argv = _tree(tmp_path, "polite", port)
    script = textwrap.dedent(
        f"""
        import time
        from pathlib import Path
        from serve.adapters.supervisor import Supervised
        running = Supervised.start({argv!r}, {{}}, Path({str(tmp_path / "boot")!r}), port={port}, orphan=True)
        print(running.pid, running._watchdog.pid, running.temporary, flush=True)
        time.sleep(600)
        """
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as runner:
        assert runner.stdout is not None
        pid, watchdog, temporary = runner.stdout.readline().split()
        facts = _facts(tmp_path)
        os.kill(runner.pid if victim == "runner" else int(watchdog), signal.SIGKILL)
        try:
            assert _until(lambda: _gone(int(pid)), 10.0)
            if victim == "runner":
                assert _until(lambda: _gone(int(watchdog)), 10.0)
                _assert_clean(facts, Path(temporary))
                assert not (tmp_path / "boot").exists()
        finally:
            runner.kill()
            for name in ("worker", "pid"):
                if not _gone(int(str(facts[name]))):
                    os.kill(int(str(facts[name])), signal.SIGKILL)
            for path in Path("/dev/shm").glob(f"*{facts['pid']}"):
                path.unlink()
            Path("/dev/shm", str(facts["shared"])).unlink(missing_ok=True)
