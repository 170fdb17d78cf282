"""What processes share that is no file: memory, semaphores and queues of System V, and POSIX queues.

They outlive whoever made them and stand for everybody of the machine, but for a sandbox, which has its own. Which of
them are a session's follows from what it asked for: the keys and names that it made, and that nobody had before.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from runner.craft.call_table import ObjectCall
from runner.craft.others import Others

QUEUES = "/dev/mqueue"
"""Where POSIX queues are listed, if anywhere."""
KINDS = {"shm": "shared memory", "sem": "semaphores", "msg": "queue"}
_CREATE, _PRIVATE = 0o1000, 0
"""``IPC_CREAT`` and ``IPC_PRIVATE``."""
Fields = dict[str, int]


class Queues:
    """Those there are, and which of them the session of a keeper made."""

    def __init__(self, keeper: int, open_number: int) -> None:
        """``open_number`` is this machine's number of ``mq_open``."""
        self._open = open_number
        self._others = Others(keeper)
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._before = {kind: _listed(kind).keys() for kind in KINDS}
        self._asked: set[tuple[str, int]] = set()
        self._own: set[tuple[str, int]] = set()
        self._names: set[str] = set()

    def reached(self, call: ObjectCall, first: int, flags: int) -> str:
        """Which object that is not its own a call is about; empty for none."""
        number = ctypes.c_int(first & 0xFFFFFFFF).value
        if call.flags is not None:
            if flags & _CREATE or number == _PRIVATE:
                self._asked.add((call.kind, number))
            return ""  # to know its number is not to use it
        if (call.kind, number) in self._own:
            return ""
        fields = _listed(call.kind).get(number)
        if fields is None or self._is_own(call.kind, number, fields):
            return ""
        return f"System V {KINDS[call.kind]} {number}"

    def _is_own(self, kind: str, number: int, fields: Fields) -> bool:
        """A removed one that is still in use has lost its key, so what was found once is kept."""
        made = number not in self._before[kind] and (kind, fields["key"]) in self._asked
        if made and ("cpid" not in fields or self._others.own(fields["cpid"])):
            self._own.add((kind, number))
        return (kind, number) in self._own

    def queue(self, name: str, flags: int | None) -> str:
        """A POSIX queue that is opened with these flags, or removed; which one that is not its own."""
        if name in self._names:
            return ""
        if self._stands(name):
            return f"queue {name}"
        if flags is not None and flags & os.O_CREAT:
            self._names.add(name)
        return ""

    def _stands(self, name: str) -> bool:
        ctypes.set_errno(0)
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = self._libc.syscall(self._open, ctypes.c_char_p(os.fsencode(name)), flags, 0, None)
        if descriptor < 0:
            return ctypes.get_errno() == errno.EACCES
        os.close(descriptor)
        return True

    def left(self) -> Iterator[str]:
        """What it made and what still stands."""
        for kind, words in KINDS.items():
            for number, fields in _listed(kind).items():
                if (kind, number) in self._own or self._is_own(kind, number, fields):
                    yield f"System V {words} {number}"
        yield from (f"{QUEUES}/{name}" for name in sorted(self._names) if self._stands(name))


def _listed(kind: str) -> dict[int, Fields]:
    """Every object of a kind by its number; none where the kernel has no such thing."""
    with suppress(OSError):
        head, *lines = Path(f"/proc/sysvipc/{kind}").read_text().splitlines()
        names = head.split()
        rows = (dict(zip(names, map(int, line.split()), strict=False)) for line in lines)
        # A key is shown without its sign or with it, by kind and release.
        return {row[names[1]]: row | {"key": ctypes.c_int(row["key"] & 0xFFFFFFFF).value} for row in rows}
    return {}


__all__ = ["QUEUES", "Queues"]
