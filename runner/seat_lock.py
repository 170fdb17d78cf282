"""One run at a time on a seat: two at once would measure each other.

The lock is the kernel's (``flock`` on ``<state>/seats/<seat>.lock``), so it ends with the process that held it, however
that ended. The file says who holds it, for the message alone.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from runner.clock import now
from runner.digest import canonical_json
from runner.errors import StateError
from runner.paths import state_home

LOOK_SECONDS = 0.5


@contextmanager
def occupied(seat: str, who: str, wait: Callable[[str], None] | None = None) -> Iterator[float]:
    """Hold ``seat`` for ``who``, for example ``run NAME``; gives the seconds that were spent waiting for it.

    Where somebody else holds it: with ``wait``, which is told by whom, until it is free; else StateError.
    """
    path = state_home() / "seats" / f"{seat}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        started, told = time.monotonic(), False
        while not _taken(descriptor):
            if wait is None:
                raise StateError(
                    "the seat is in use",
                    where=seat,
                    expected="nobody on it",
                    found=_holder(path),
                    next_step="wait for its end; `runner watch` shows it",
                )
            if not told:
                wait(f"seat {seat} is in use by {_holder(path)}: waiting")
                told = True
            time.sleep(LOOK_SECONDS)
        os.truncate(descriptor, 0)
        os.pwrite(descriptor, canonical_json({"who": who, "process": os.getpid(), "since": now()}), 0)
        yield time.monotonic() - started if told else 0.0
    finally:
        os.close(descriptor)


def _taken(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _holder(path: Path) -> str:
    """What the holder wrote; it may be about to."""
    try:
        told = json.loads(path.read_bytes())
    except ValueError:
        return "another process"
    return f"{told['who']} (process {told['process']}) since {told['since']}"


__all__ = ["occupied"]
