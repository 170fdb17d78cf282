"""Start a command so that nothing of it outlives the runner, even one ended by ``kill -9``.

runner ── pipe ── watchdog (adopts orphans) ── command in a session of its own ── its workers

The command gets exactly the declared environment plus PATH, HOME and TMPDIR. HOME lies in the boot's private folder;
TMPDIR is a short private folder under the system's temporary folder, because AF_UNIX paths end at 107 bytes.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runner.errors import SeatError
from serve.adapters import watchdog

GRACE_SECONDS = 5.0
STOP_TIMEOUT_SECONDS = 60.0


_reserved: set[str] = set()
"""Names that this process holds."""


def reserve(name: str) -> bool:
    """Hold ``name`` on this machine until this process ends, however it ends; False where another process holds it.

    An abstract socket of a name exists once in a network.
    """
    if name in _reserved:
        return True
    reservation = socket.socket(socket.AF_UNIX)
    try:
        reservation.bind(f"\0carve-{name}")
    except OSError:
        reservation.close()
        return False
    reservation.detach()
    _reserved.add(name)
    return True


def free_port() -> int:
    """A loopback TCP port that was free a moment ago and that no other runner on this machine takes meanwhile.

    Engines share a port without an error (SO_REUSEPORT): two of them would answer each other's requests. So a port is
    reserved.
    """
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        name = f"port-{port}"
        if name not in _reserved and reserve(name):
            return port


def home_of(folder: Path) -> Path:
    """The command's HOME and working folder inside its private ``folder``, removed when it ends."""
    return folder / "home"


def import_path(first: Path | None = None) -> dict[str, str]:
    """``PYTHONPATH`` of a command: ``first``, then what ``CARVE_PYTHONPATH`` names.

    The latter is set on a host where nothing of ours is installed: code and packages lie in folders there.
    """
    folders = [str(first)] if first else []
    folders += filter(None, [os.environ.get("CARVE_PYTHONPATH")])
    return {"PYTHONPATH": os.pathsep.join(folders)} if folders else {}


def traces_of(home: Path) -> Path:
    """Where a profiler of the command writes its traces, inside its home; removed with it."""
    return home / "traces"


@dataclass
class Supervised:
    """A running command. Create with :meth:`start`."""

    pid: int
    """Process id of the command."""
    log: Path
    """Standard output and standard error, as they come."""
    temporary: Path
    """The command's TMPDIR, removed when it ends."""
    home: Path
    _watchdog: subprocess.Popen[bytes]
    _ending: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def start(
        cls,
        argv: Sequence[str],
        env: Mapping[str, str],
        folder: Path,
        *,
        port: int | None = None,
        grace: float = GRACE_SECONDS,
        orphan: bool = False,
        sandboxed: bool = False,
    ) -> Supervised:
        """Start ``argv`` under a watchdog; ``folder`` receives ``engine.log``.

        ``port`` is checked for a listener after the end. ``grace`` is the time in seconds between SIGTERM and SIGKILL.
        A ``sandboxed`` command starts bubblewrap, which then starts the command that is meant; its shared memory is
        its own and ends with it. With ``orphan`` the watchdog removes ``folder`` where the runner died and cannot do
        it itself.
        Raises SeatError when the command cannot be started.
        """
        folder = folder.resolve()
        folder.mkdir(parents=True, exist_ok=True)
        home, log = home_of(folder), folder / "engine.log"
        configuration = {
            "argv": list(argv),
            "environment": {"PATH": os.environ.get("PATH", os.defpath), **env},
            "log": str(log),
            "home": str(home),
            "temporary_root": "/tmp",
            "runner": os.getpid(),
            "port": port,
            "orphan": str(folder) if orphan else None,
            "grace": grace,
            "sandboxed": sandboxed,
        }
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", watchdog.__file__, json.dumps(configuration)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            env={"PATH": os.environ.get("PATH", os.defpath)},
        )
        assert process.stdout is not None
        line = process.stdout.readline()
        answer: dict[str, Any] = json.loads(line) if line else {"error": "the watchdog did not start"}
        if "error" in answer:
            process.communicate()
            raise SeatError("the command could not be started", where=str(argv[0]), found=str(answer["error"]))
        return cls(answer["pid"], log, Path(answer["temporary"]), home, process)

    def poll(self) -> int | None:
        """The command's exit code once it and all its processes have ended (negative: signal), else None."""
        if self._watchdog.poll() is None:
            return None
        self._finish(b"")
        return int(self._ending["exit_code"] or 0)

    def text(self) -> str:
        """Everything the command has printed so far."""
        return self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""

    def stop(self) -> tuple[str, ...]:
        """SIGTERM, the grace, SIGKILL to all that is left, cleaning; what still remains, in words. Idempotent."""
        self._finish(b"stop\n")
        return tuple(self._ending["leftovers"])

    @property
    def forced(self) -> tuple[str, ...]:
        """After the end: processes that had to be killed."""
        return tuple(self._ending.get("forced", ()))

    @property
    def removed(self) -> tuple[str, ...]:
        """After the end: shared memory that the command left and the watchdog removed."""
        return tuple(self._ending.get("removed", ()))

    def _finish(self, message: bytes) -> None:
        if self._ending:
            return
        try:
            output, _ = self._watchdog.communicate(message, timeout=STOP_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            self._watchdog.kill()
            output, _ = self._watchdog.communicate()
        lines = output.splitlines()
        if lines:
            self._ending = json.loads(lines[-1])
            return
        # The watchdog itself was killed: the command died with it (parent-death signal); say what is still there.
        left = ["watchdog ended early"] + [f"folder {path}" for path in (self.temporary, self.home) if path.exists()]
        self._ending = {"exit_code": -9, "forced": [], "removed": [], "leftovers": left}
