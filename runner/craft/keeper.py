"""The process around a craftsperson's command: first in its sandbox, and nothing below it outlives it.

Started with ``python -S -P -m runner.craft.keeper CONFIGURATION``. It is the first process of the sandbox (where there
is none, it adopts every orphan), so what the command leaves behind is its own child and can be named. Standard input is
a pipe of the runner: a line or its end means stop. Standard output belongs to the command; how it ended goes as one
JSON line to a descriptor that the command does not have.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from runner.craft.calls import Calls
from serve.adapters.watchdog import PR_SET_CHILD_SUBREAPER, PR_SET_PDEATHSIG, Watchdog, prctl

PR_SET_DUMPABLE = 4
PR_CAPBSET_DROP, CAP_SYS_PTRACE = 24, 19


class Keeper(Watchdog):
    """One command with limits, its standard input from a file, its calls noted."""

    def __init__(self, configuration: dict[str, Any]) -> None:
        super().__init__(configuration)
        processes = [pid for pid in (os.getpid(), configuration["runner"]) if pid]
        inside = [f"/proc/{pid}/mem" for pid in processes]  # ps and lsof read what else there is of every process
        self.calls = Calls(configuration["own"], [*configuration["sealed"], *inside], configuration["kept"])

    def start(self) -> None:
        """Start the command in a session of its own; it dies with this process."""
        child = self.calls.start(self._started)
        self.pid = child.pid
        child.returncode = 0  # Popen must never wait for it: reap() does

    def _started(self) -> subprocess.Popen[bytes]:
        with Path(self.configuration["stdin"]).open("rb") as given:
            return subprocess.Popen(
                self.configuration["argv"],
                env=self.configuration["environment"],
                cwd=self.configuration["folder"],
                stdin=given,
                start_new_session=True,
                close_fds=False,  # none of ours is inherited
                preexec_fn=self._begin,  # noqa: PLW1509 (no other thread holds a lock that it takes)
            )

    def _begin(self) -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        with contextlib.suppress(OSError):  # nobody but root has it; without it, nobody looks into who has it
            prctl(PR_CAPBSET_DROP, CAP_SYS_PTRACE)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        largest = int(self.configuration["file_bytes"])
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest, largest))

    def left(self) -> list[str]:
        """Command lines of processes that still run although the command has ended."""
        limit = time.monotonic() + float(self.configuration["settle"])
        while self.alive() and time.monotonic() < limit:
            time.sleep(0.02)
        return [line for pid in self.alive() if (line := _command_line(pid))]


def _command_line(pid: int) -> str:
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        return b" ".join(words).decode(errors="replace").strip()[:120] or f"process {pid}"
    return ""


def main() -> None:
    """Supervise the command of ``argv[1]`` (JSON) until it, the runner or a stop line ends it."""
    if os.getpid() != 1:
        prctl(PR_SET_CHILD_SUBREAPER, 1)
    configuration: dict[str, Any] = json.loads(sys.argv[1])
    report = int(configuration["report"])
    for descriptor in (report, int(configuration["lock"])):  # which ends with this process
        os.set_inheritable(descriptor, False)
    prctl(PR_SET_DUMPABLE, 0)  # the command may not look into the process that reports on it
    keeper = Keeper(configuration)
    answer: dict[str, Any]
    try:
        keeper.start()
        grace = keeper.wait()
        ended = keeper.exit_code
        left = keeper.left() if ended is not None else []
        keeper.end(grace)
        answer = {"exit_code": ended, "left": left, **keeper.calls.report()}
    except OSError as error:
        answer = {"error": str(error)}
    os.write(report, json.dumps(answer).encode() + b"\n")
    os._exit(0)  # the interpreter would end the thread that answers before the one whose calls it answers


if __name__ == "__main__":
    main()
