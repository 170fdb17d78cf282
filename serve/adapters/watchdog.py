"""The process between the runner and an engine: whatever ends the runner, it ends the engine and cleans up.

Standard library only and run by path (``python -I -S watchdog.py CONFIGURATION``), so it starts in milliseconds and
depends on nothing that could break. It adopts every orphan below it (child subreaper), so a worker that left the
engine's process group is still found. Standard input is a pipe held by the runner: a line or its end means stop.
Standard output carries two JSON lines: the started command, and how it ended.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
SANDBOX = "bwrap"
TEMPORARY = "{temporary}"
"""In a command: the temporary folder that is only made here."""
SHARED_MEMORY = Path("/dev/shm")
ORPHANED_GRACE_SECONDS = 2.0
SCAN_SECONDS = 2.0
OWN_SHARED_NAMES = ("vllm_dist_", "psm_", "sem.", "__KMP_REGISTERED_LIB_", "torch_", "carve_")


def prctl(option: int, value: int) -> None:
    """Linux ``prctl(2)`` with one argument; OSError when the kernel refuses."""
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option})")


def descendants(root: int) -> list[int]:
    """Live processes below ``root``, parents first.

    Zombies are left out but not what is below them: a process whose first thread has ended is one until its other
    threads have, and its children are still its own.
    """
    parents: dict[int, list[int]] = {}
    ended = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError):
                state, parent = (entry / "stat").read_text().rsplit(")", 1)[1].split()[:2]
                parents.setdefault(int(parent), []).append(int(entry.name))
                if state in "ZX":
                    ended.add(int(entry.name))
    found: list[int] = []
    waiting = [root]
    while waiting:
        children = parents.get(waiting.pop(0), [])
        found += children
        waiting += children
    return [pid for pid in found if pid not in ended]


def shared_files(pid: int, *, mapped: bool) -> set[str]:
    """Names under ``/dev/shm`` that a process holds open, and with ``mapped`` also those it only maps."""
    names: set[str] = set()
    with contextlib.suppress(OSError):
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                names.add(str(link.readlink()))
    if mapped:
        with contextlib.suppress(OSError):
            names |= {
                line.split(None, 5)[5]
                for line in Path(f"/proc/{pid}/maps").read_text().splitlines()
                if "/dev/shm/" in line
            }
    prefix = f"{SHARED_MEMORY}/"
    return {
        name.removeprefix(prefix).removesuffix(" (deleted)")
        for name in names
        if name.startswith(prefix) and name.removeprefix(prefix).startswith(OWN_SHARED_NAMES)
    }


class Watchdog:
    """One supervised command."""

    def __init__(self, configuration: dict[str, Any]) -> None:
        self.configuration = configuration
        self.grace = float(configuration["grace"])
        self.shared: set[str] = set()
        self.pids: set[int] = set()
        self.exit_code: int | None = None
        self.told_to_stop = False
        self.temporary = Path(tempfile.mkdtemp(prefix="carve-", dir=configuration["temporary_root"]))
        self.home = Path(configuration["home"])

    def start(self) -> None:
        """Start the command in a session of its own; it dies with this process."""
        self.home.mkdir(parents=True, exist_ok=True)
        environment = self.configuration["environment"] | {"HOME": str(self.home), "TMPDIR": str(self.temporary)}
        argv = [word.replace(TEMPORARY, str(self.temporary)) for word in self.configuration["argv"]]
        with Path(self.configuration["log"]).open("ab") as log:
            child = subprocess.Popen(  # reap() collects it
                argv,
                env=environment,
                cwd=self.home,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=lambda: prctl(PR_SET_PDEATHSIG, signal.SIGKILL),  # noqa: PLW1509 (single-threaded)
            )
        self.pid = child.pid
        child.returncode = 0  # Popen must never wait for it: reap() does
        say({"pid": self.pid, "temporary": str(self.temporary)})

    def reap(self) -> None:
        """Collect every ended child, our own and adopted orphans."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.pid:
                self.exit_code = os.waitstatus_to_exitcode(status)

    def scan(self, *, mapped: bool = False) -> None:
        """Note which processes and shared memory are ours, so that nothing else is ever removed."""
        alive = descendants(os.getpid())
        self.pids.update(alive)
        for pid in [] if self.configuration["sandboxed"] else alive:
            self.shared |= shared_files(pid, mapped=mapped)

    def wait(self) -> float:
        """Wait for the command's end, a stop line, or the runner's death; the grace that the end deserves."""
        runner = int(self.configuration["runner"])
        receive, send = os.pipe()
        os.set_blocking(send, False)
        signal.set_wakeup_fd(send)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: setattr(self, "told_to_stop", True))
        scanned = time.monotonic()
        while True:
            ready, _, _ = select.select([0, receive], [], [], 1.0)
            if receive in ready:
                os.read(receive, 4096)
            self.reap()
            if self.exit_code is not None:
                return 0.0
            if 0 in ready:
                return self.grace if os.read(0, 4096) else min(self.grace, ORPHANED_GRACE_SECONDS)
            if os.getppid() != runner or self.told_to_stop:
                return min(self.grace, ORPHANED_GRACE_SECONDS)
            if time.monotonic() - scanned > SCAN_SECONDS:
                self.scan()
                scanned = time.monotonic()

    def command(self) -> int:
        """The command that was meant: in a sandbox the first process below bubblewrap's own, which tells it nothing."""
        if not self.configuration["sandboxed"]:
            return self.pid
        return next((pid for pid in descendants(self.pid) if name_of(pid) != SANDBOX), self.pid)

    def alive(self) -> list[int]:
        """Our descendants that still run; none only where two readings say so, since one is not made in an instant."""
        self.reap()
        return descendants(os.getpid()) or descendants(os.getpid())

    def end(self, grace: float) -> list[str]:
        """SIGTERM to the command, ``grace`` seconds for the whole tree, then SIGKILL; the processes that needed it."""
        self.scan(mapped=True)
        if self.exit_code is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.command(), signal.SIGTERM)
        limit = time.monotonic() + grace
        while self.alive() and time.monotonic() < limit:
            time.sleep(0.05)
        self.scan(mapped=True)
        forced = []
        limit = time.monotonic() + 3.0
        while (rest := self.alive()) and time.monotonic() < limit:
            for pid in rest:
                forced.append(f"process {pid}")
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)
        return sorted(set(forced))

    def clean(self) -> tuple[list[str], list[str]]:
        """Remove our shared memory and folders: (what was removed, what is still there)."""
        distributed = tuple(path.name for path in self.temporary.glob("vllm_dist_*"))
        registered = tuple(f"__KMP_REGISTERED_LIB_{pid}_" for pid in self.pids)
        removed: list[str] = []
        left = [f"process {pid}" for pid in self.alive()]
        for path in sorted(SHARED_MEMORY.iterdir()):
            if path.name in self.shared or path.name.startswith(distributed + registered):
                with contextlib.suppress(OSError):
                    path.unlink()
                (left if path.exists() else removed).append(f"shared memory {path}")
        folders = [self.temporary, self.home]
        if self.configuration["orphan"] and os.getppid() != int(self.configuration["runner"]):
            folders.append(Path(self.configuration["orphan"]))
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)
            if folder.exists():
                left.append(f"folder {folder}")
        port = self.configuration["port"]
        if port is not None and listening(int(port)):
            left.append(f"port {port}")
        return removed, left


def name_of(pid: int) -> str:
    """A process's command name; empty where it has ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().rstrip("\n")
    return ""


def listening(port: int) -> bool:
    """Whether something accepts connections on this loopback port."""
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def say(message: dict[str, Any]) -> None:
    """One JSON line to the runner; the runner may be gone."""
    with contextlib.suppress(OSError):
        os.write(1, json.dumps(message).encode() + b"\n")


def main() -> int:
    """Supervise the command of ``argv[1]`` (JSON) until it, the runner or a stop line ends it."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    watchdog = Watchdog(json.loads(sys.argv[1]))
    try:
        watchdog.start()
    except OSError as error:
        shutil.rmtree(watchdog.temporary, ignore_errors=True)
        say({"error": str(error)})
        return 1
    forced = watchdog.end(watchdog.wait())
    removed, left = watchdog.clean()
    say({"exit_code": watchdog.exit_code, "forced": forced, "removed": removed, "leftovers": left})
    return 0


if __name__ == "__main__":
    sys.exit(main())
