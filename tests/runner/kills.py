"""Runs of the command line that are killed, what must be gone within a minute, and what a resumed run must give."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from serve.adapters.watchdog import SHARED_MEMORY, descendants, listening, shared_files

CLEAN_SECONDS = 60
KILLED = Path(__file__).parent / "killed_run.py"


def start(order: Path, run: str = "") -> subprocess.Popen[bytes]:
    """``runner execute``, with ``run`` resumed."""
    command = [sys.executable, "-m", "runner.cli", "execute", str(order), "--quiet"]
    return subprocess.Popen(
        [*command, *(["--resume", run] if run else [])], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )


def run_until(moment: str, order: Path, run: str = "") -> int:
    """The exit code of a run that dies at ``moment`` (see ``killed_run.py``)."""
    command = [sys.executable, str(KILLED), str(order), moment, *([run] if run else [])]
    return subprocess.run(command, check=False).returncode


def only_run(home: Path) -> str:
    """The name of the one run of this test."""
    (folder,) = (home / "state" / "runs").iterdir()
    return folder.name


def events(home: Path, kind: str) -> list[dict[str, Any]]:
    """Events of one kind in the journal of the one run, also while another process writes it."""
    journals = (home / "state" / "runs").glob("*/journal.jsonl")
    lines = [line for journal in journals for line in journal.read_bytes().rpartition(b"\n")[0].splitlines()]
    return [event for line in lines if (event := json.loads(line))["event"] == kind]


def wait_until(condition: Callable[[], bool]) -> None:
    """Raises TimeoutError after five minutes."""
    limit = time.monotonic() + 300
    while not condition():
        if time.monotonic() > limit:
            raise TimeoutError
        time.sleep(0.02)


@dataclass(frozen=True)
class Traces:
    """What the processes below a runner hold on this machine."""

    processes: frozenset[int]
    folders: frozenset[Path]
    """Temporary and home folders."""
    ports: frozenset[int]
    shared: frozenset[Path]
    """Shared memory."""

    def left(self) -> list[str]:
        """What of it is still there, in words."""
        return [
            *(f"process {pid}" for pid in self.processes if Path(f"/proc/{pid}").exists()),
            *(f"port {port}" for port in self.ports if listening(port)),
            *(str(path) for path in (*self.folders, *self.shared) if path.exists()),
        ]


def traces_of(runner: int) -> Traces:
    """What a running runner has started, before it is killed."""
    folders, ports, shared = set(), set(), set()
    processes = descendants(runner)
    for pid in processes:
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
            variables = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
        except OSError:  # it has ended meanwhile
            continue
        settings = dict(variable.partition("=")[::2] for variable in variables)
        if "TMPDIR" in settings:
            folders |= {Path(settings["TMPDIR"]), Path(settings["HOME"])}
        ports |= {int(port) for word, port in pairwise(words) if word == "--port"}
        shared |= {SHARED_MEMORY / name for name in shared_files(pid, mapped=True)}
    return Traces(frozenset(processes), frozenset(folders), frozenset(ports), frozenset(shared))


def kill(runner: subprocess.Popen[bytes]) -> Traces:
    """``kill -9``; what the runner had started."""
    traces = traces_of(runner.pid)
    runner.kill()
    runner.communicate()
    return traces


NOTHING = Traces(frozenset(), frozenset(), frozenset(), frozenset())


def assert_clean(home: Path, traces: Traces = NOTHING) -> None:
    """Within a minute nothing of ``traces`` and no process that works in this test's folders is left."""
    deadline = time.monotonic() + CLEAN_SECONDS
    while (left := ours(home) + fake_shared_memory(home) + traces.left()) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not left


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


def fake_shared_memory(home: Path) -> list[str]:
    """Segments of fake engines that this test's boots started."""
    pids = [json.loads(path.read_text())["pid"] for path in home.glob("state/runs/*/boots/[!.]*.json")]
    return [f"carve_fake_{pid}" for pid in pids if Path(f"/dev/shm/carve_fake_{pid}").exists()]


def finished_record(home: Path, run: str) -> dict[str, Any]:
    """The record of a finished run, whose report verifies from its evidence."""
    record: dict[str, Any] = json.loads((home / "state" / "runs" / run / "record.json").read_bytes())
    verify = [sys.executable, "-m", "runner.cli", "verify", "--deep"]
    report = home / "workspace" / "reports" / record["plan"]["order"] / run
    answer = subprocess.run([*verify, str(report)], capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    return record
