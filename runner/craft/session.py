"""One working session: the command in its sandbox, what it prints kept, its limits enforced, its heart heard."""

from __future__ import annotations

import fcntl
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
from typing import Any

from runner.clock import now
from runner.craft import sandbox
from runner.craft.interruption import STOPPED
from runner.craft.sandbox import Walls
from runner.digest import sha256_file
from runner.errors import SeatError
from runner.model.attempt import Finding, FindingKind, Session
from runner.model.craftsperson import Limits
from runner.paths import config_home, source_root, state_home
from runner.sandbox import python_folders
from runner.steps.journal import Journal
from runner.visible import visible
from serve.adapters.watchdog import SHARED_MEMORY, descendants

STOP_SECONDS = 60.0
"""A keeper that has not ended by then is ended by force, and what it knows is lost."""
SETTLE_SECONDS = 10.0
"""What a command started and did not wait for may end by itself for so long, on a busy machine too."""
WATCH_SECONDS = 0.05
LOOKING_SHARE = 10
"""A look at the disk takes at most one part in so many of the time."""
RESERVED_BYTES = 100 << 20
"""What has to stay free: files that were removed and are still open fill a disk, too."""
HEARTBEAT_SECONDS = 5.0
WORDS_BYTES = 500
SHOWN = 12
"""Paths that a finding names."""
ENTRY_BYTES = 4096
"""What an empty file or folder counts on the disk."""


@dataclass(frozen=True)
class Setting:
    """Everything a session needs."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    given: Path
    """File on the command's standard input, as the command sees it."""
    transcript: Path
    walls: Walls
    limits: Limits
    journal: Journal
    sandboxed: bool
    stop: threading.Event | None = None
    """Set from another thread, it ends the session as an interrupt does; only the main thread gets those."""


@dataclass
class _Watch:
    """What a session has used up so far, and the first limit that it broke."""

    setting: Setting
    started: float = field(default_factory=time.monotonic)
    output: int = 0
    beats: int = 0
    keeper: int = 0
    """Process id, once it runs."""
    broken: Finding | None = None
    _beaten: float = 0.0
    _given: int = 0
    """Bytes that were there before it began."""

    def __post_init__(self) -> None:
        self._given = self._taken()

    def look(self) -> None:
        """Compare with the limits; write a heartbeat where one is due."""
        limits, seconds, disk = self.setting.limits, time.monotonic() - self.started, self.disk()
        for kind, used, limit, unit in (
            ("time-limit", seconds, limits.wall_seconds, "seconds"),
            ("output-limit", self.output, limits.output_bytes, "bytes printed"),
            ("disk-limit", disk, limits.disk_bytes, "bytes added on the disk"),
        ):
            if used > limit and self.broken is None:
                self.broken = finding(kind, f"stopped at {used:.0f} {unit}; the limit is {limit}")  # type: ignore[arg-type]
        free = shutil.disk_usage(self.setting.walls.clone.parent).free
        if free < RESERVED_BYTES and self.broken is None:
            self.broken = finding("disk-limit", f"stopped with {free} bytes left free on the disk")
        if seconds - self._beaten >= HEARTBEAT_SECONDS or not self.beats:
            self.setting.journal.write("heartbeat", seconds=round(seconds), output_bytes=self.output, disk_bytes=disk)
            self._beaten, self.beats = seconds, self.beats + 1

    def disk(self) -> int:
        """Bytes that came into the clone, the home and the temporary folder since it began."""
        return max(self._taken() - self._given, 0)

    def _taken(self) -> int:
        walls = self.setting.walls
        folders = (walls.clone, walls.home, walls.temporary)
        return sum(size for folder in folders for size in sizes(folder)) + without_name(self.keeper, walls.home)


def sizes(folder: Path) -> Iterator[int]:
    """Bytes that each entry below ``folder`` takes; links are not followed, what vanishes meanwhile counts nothing."""
    waiting = [folder]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(Path(entry.path))
                    yield max(entry.stat(follow_symlinks=False).st_blocks * 512, ENTRY_BYTES)
        except OSError:
            continue


def without_name(keeper: int, folder: Path) -> int:
    """Bytes of files on the disk of ``folder`` that the processes below ``keeper`` hold open and have removed."""
    found: dict[int, int] = {}
    with suppress(OSError):
        disk = folder.stat().st_dev
        for pid in descendants(keeper) if keeper else ():
            with suppress(OSError):  # it has ended
                for link in Path(f"/proc/{pid}/fd").iterdir():
                    about = link.stat()
                    if about.st_nlink == 0 and about.st_dev == disk:
                        found[about.st_ino] = about.st_blocks * 512
    return sum(found.values())


def finding(kind: FindingKind, detail: str) -> Finding:
    """A finding; names and words of the craftsperson stay on their line."""
    return Finding(kind=kind, detail=visible(detail))


@dataclass(frozen=True)
class Held:
    """A session that is over."""

    session: Session
    findings: tuple[Finding, ...]
    wrote: tuple[str, ...] | None
    """Every path outside that it asked to change; None where nobody knows all of them."""


def after_others(folder: Path) -> int:
    """The attempt's lock, which the keeper of an interrupted session holds until everything below it has ended."""
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


def hold(setting: Setting) -> Held:
    """Run the command to its end or to a limit; what happened, and what was wrong with it.

    Raises SeatError where the command cannot be started. Whatever ends this process ends the session too.
    """
    lock = after_others(setting.transcript.parent)
    started, watch = now(), _Watch(setting)
    # Not a pipe: one could be opened again by its name below /proc, and a report be written by who it is about.
    receive, send = (one.detach() for one in socket.socketpair())
    with setting.transcript.open("ab", buffering=0) as transcript:  # after what was said before an interruption
        process = subprocess.Popen(
            _command(setting, send, lock),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=(send, lock),
            start_new_session=True,
            env={"PATH": os.environ.get("PATH", os.defpath), "PYTHONPATH": _keeper_path(setting)},
        )
        os.close(send)
        os.close(lock)
        watch.keeper = process.pid
        try:
            _follow(process, transcript, watch)
        except KeyboardInterrupt:
            # Whoever is impatient asks twice; what is known is written down all the same.
            before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
            _end(process)
            found = [one.model_dump(mode="json") for one in _seen(_reported(receive))]
            setting.journal.write(STOPPED, findings=found)
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            raise
        finally:
            _end(process)
    report = _reported(receive)
    if "error" in report:
        raise SeatError("the craftsperson could not be started", where=setting.argv[0], found=report["error"])
    session = Session(
        sandbox=sandbox.version() if setting.sandboxed else "none",
        network="open" if setting.walls.network or not setting.sandboxed else "none",
        started_at=started,
        ended_at=now(),
        exit_code=None if watch.broken else report.get("exit_code"),
        heartbeats=watch.beats,
        transcript=sha256_file(setting.transcript),
        transcript_bytes=setting.transcript.stat().st_size,
        unseen=tuple(_unseen(setting, report)),
    )
    known = report.get("all") and not report["unseen"]
    return Held(session, tuple(_faults(session, watch, report)), tuple(report["wrote"]) if known else None)


def _reported(receive: int) -> dict[str, Any]:
    """What the keeper wrote down last; nothing where it could not."""
    with os.fdopen(receive, "rb") as stream:
        line = stream.readline()
    return dict(json.loads(line)) if line else {}


def _command(setting: Setting, report: int, lock: int) -> list[str]:
    configuration = {
        "argv": list(setting.argv),
        "environment": dict(setting.environment),
        "folder": str(setting.walls.checkout if setting.sandboxed else setting.walls.clone),
        "stdin": str(setting.given),
        "file_bytes": setting.limits.disk_bytes,
        "report": report,
        "lock": lock,
        "sandboxed": setting.sandboxed,
        "runner": 0 if setting.sandboxed else os.getpid(),
        "grace": 1.0,
        "settle": SETTLE_SECONDS,
        "temporary_root": str(sandbox.TEMPORARY if setting.sandboxed else setting.walls.temporary),
        "home": str(sandbox.HOME if setting.sandboxed else setting.walls.home),
        "own": [str(path.resolve()) for path in _own(setting)],
        "sealed": [str(path.resolve()) for path in (state_home(), config_home())],
        "kept": [str(path) for path in python_folders()],
    }
    keeper = [sys.executable, "-S", "-P", "-m", "runner.craft.keeper", json.dumps(configuration)]
    return sandbox.command(keeper, setting.walls) if setting.sandboxed else keeper


def _own(setting: Setting) -> tuple[Path, ...]:
    """Where the session may write, as it sees these folders."""
    walls = setting.walls
    if setting.sandboxed:
        return (walls.checkout, sandbox.HOME, sandbox.TEMPORARY, SHARED_MEMORY)  # which ends with the sandbox
    return (walls.clone, walls.home, walls.temporary)


def _keeper_path(setting: Setting) -> str:
    return str(sandbox.KEEPER if setting.sandboxed else source_root())


def _follow(process: subprocess.Popen[bytes], transcript: FileIO, watch: _Watch) -> None:
    """Keep what is printed until its end. At the first limit that breaks the keeper is told to stop."""
    assert process.stdin is not None and process.stdout is not None
    due, stopped = 0.0, 0.0
    while not stopped or time.monotonic() - stopped < STOP_SECONDS:
        if watch.setting.stop and watch.setting.stop.is_set():
            raise KeyboardInterrupt
        ready, _, _ = select.select([process.stdout], [], [], WATCH_SECONDS)
        if ready:
            data = os.read(process.stdout.fileno(), 1 << 16)
            if not data:
                watch.look()  # it may have ended by itself beyond a limit
                return
            room = watch.setting.limits.output_bytes - watch.output
            transcript.write(data[: max(room, 0)])
            watch.output += len(data)
        began = time.monotonic()
        if watch.output > watch.setting.limits.output_bytes or began >= due:
            watch.look()
            due = time.monotonic() + max(WATCH_SECONDS, LOOKING_SHARE * (time.monotonic() - began))
        if watch.broken and not stopped:
            stopped = time.monotonic()
            with suppress(OSError):
                process.stdin.write(b"stop\n")
                process.stdin.flush()


def _end(process: subprocess.Popen[bytes]) -> None:
    """The end of its standard input stops the keeper; it is ended by force where it does not stop."""
    assert process.stdin is not None and process.stdout is not None
    with suppress(OSError):
        process.stdin.close()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    process.stdout.close()


def _faults(session: Session, watch: _Watch, report: Mapping[str, Any]) -> Iterator[Finding]:
    if watch.broken:
        yield watch.broken
    elif not report:
        yield finding("not-supervised", "the process that watches the session was ended before it could report")
    elif session.exit_code:
        words = _last_words(watch.setting.transcript)
        yield finding("failed", f"the command ended with exit code {session.exit_code}; its last words: {words}")
    yield from _seen(report)
    left: Sequence[str] = report.get("left", ())
    if left:
        yield finding("left-processes", f"still running after the command ended: {'; '.join(left)}")


def _seen(report: Mapping[str, Any]) -> Iterator[Finding]:
    """What its calls were, as far as the keeper noted them."""
    if wrote := report.get("wrote"):
        yield finding("outside-clone", f"wrote, or tried to, outside its clone: {_listed(wrote)}")
    if opened := report.get("opened"):
        yield finding("sealed-read", f"opened, or tried to, what only the runner may open: {_listed(opened)}")
    if reached := report.get("reached"):
        said = f"reached, or tried to, processes and services that are not its own: {_listed(reached)}"
        yield finding("outside-process", said)


def _listed(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - SHOWN} more" if len(paths) > SHOWN else ""
    return ", ".join(paths[:SHOWN]) + more


def _unseen(setting: Setting, report: Mapping[str, Any]) -> Iterator[str]:
    """What a deed could hide in, for the report."""
    if reason := report.get("unseen", "the process that watches it was ended"):
        yield f"what it opened and wrote: {reason}"
    if not setting.sandboxed:
        yield "what services of the machine did for it (timers, containers, other logins): there was no sandbox"


def _last_words(transcript: Path) -> str:
    """The last line that was printed: what a sandbox did not let happen is named there."""
    with transcript.open("rb") as stream:
        stream.seek(max(0, transcript.stat().st_size - WORDS_BYTES))
        lines = stream.read().decode(errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "none")


__all__ = ["Held", "Setting", "after_others", "finding", "hold", "sizes"]
