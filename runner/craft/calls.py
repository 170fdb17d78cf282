"""What the processes of a session ask the kernel to open, make, move or remove, read as it is asked.

A seccomp filter hands these calls to the keeper, which notes where each leads and lets it go on (seccomp_unotify(2),
Linux 5.5, no privilege; nobody can take the filter off again). It holds nothing back: a process may change a path
between this look and the kernel's own, so this names what is done in the open, and the walls are bubblewrap's. What a
service does that a session only asks (cron, a container daemon) is not its own call and is not seen here.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import platform
import select
import socket
import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import Any

_PR_SET_NO_NEW_PRIVS = 38
_SET_MODE_FILTER, _NEW_LISTENER = 1, 8
_ALLOW, _NOTIFY, _NO_SUCH_CALL = 0x7FFF0000, 0x7FC00000, 0x00050000 | 38
_RECEIVE, _SEND = 0xC0502100, 0xC0182101
_CONTINUE = 1
_NOTIFICATION, _RESPONSE = struct.Struct("=QIIiIQ6Q"), struct.Struct("=QqiI")
_AT_FDCWD = -100
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_PATH_BYTES = 4096
_X32 = 0x40000000
_GONE = ("/proc/", "/sys/", "/dev/")
"""Kernel's own files; what was left in shared memory counts all the same."""
_SHARED_MEMORY = "/dev/shm/"
NOTED = 40
"""How many paths of a kind are kept."""


@dataclass(frozen=True)
class _Call:
    """Where the arguments of a call lie: (folder descriptor or none, path) pairs, and the flags of an open."""

    paths: tuple[tuple[int | None, int], ...]
    flags: int | None = None
    follows: bool = True
    """Whether a link in the last place is followed."""
    makes: bool = False
    """Whether it does nothing where its last path stands already: ``mkdir -p`` asks for every folder above."""


_AT = ((0, 1),)
_MAKES = _Call(_AT, follows=False, makes=True)
_CALLS = {
    "openat": _Call(_AT, flags=2),
    "openat2": _Call(_AT, flags=2),
    "truncate": _Call(((None, 0),)),
    "renameat": _Call(((0, 1), (2, 3)), follows=False),
    "renameat2": _Call(((0, 1), (2, 3)), follows=False),
    "linkat": _Call(((0, 1), (2, 3)), follows=False, makes=True),
    "symlinkat": _Call(((1, 2),), follows=False, makes=True),
    "mkdirat": _MAKES,
    "mknodat": _MAKES,
    "unlinkat": _Call(_AT, follows=False),
    "fchmodat": _Call(_AT),
    "fchmodat2": _Call(_AT),
    "open": _Call(((None, 0),), flags=1),
    "creat": _Call(((None, 0),)),
    "rename": _Call(((None, 0), (None, 1)), follows=False),
    "link": _Call(((None, 0), (None, 1)), follows=False, makes=True),
    "symlink": _Call(((None, 1),), follows=False, makes=True),
    "mkdir": _Call(((None, 0),), follows=False, makes=True),
    "mknod": _Call(((None, 0),), follows=False, makes=True),
    "unlink": _Call(((None, 0),), follows=False),
    "rmdir": _Call(((None, 0),), follows=False),
    "chmod": _Call(((None, 0),)),
}
_REFUSED = ("io_uring_setup", "open_by_handle_at")
"""Ways to open files that no filter sees; every program goes on without them."""
_NUMBERS = {
    "x86_64": (
        0xC000003E,
        {
            **{"open": 2, "creat": 85, "openat": 257, "openat2": 437, "truncate": 76, "rename": 82, "renameat": 264},
            **{"renameat2": 316, "link": 86, "linkat": 265, "symlink": 88, "symlinkat": 266, "mkdir": 83},
            **{"mkdirat": 258, "mknod": 133, "mknodat": 259, "unlink": 87, "unlinkat": 263, "rmdir": 84, "chmod": 90},
            **{"fchmodat": 268, "fchmodat2": 452, "io_uring_setup": 425, "open_by_handle_at": 304, "seccomp": 317},
        },
    ),
    "aarch64": (
        0xC00000B7,
        {
            **{"openat": 56, "openat2": 437, "truncate": 45, "renameat": 38, "renameat2": 276, "linkat": 37},
            **{"symlinkat": 36, "mkdirat": 34, "mknodat": 33, "unlinkat": 35, "fchmodat": 53, "fchmodat2": 452},
            **{"io_uring_setup": 425, "open_by_handle_at": 265, "seccomp": 277},
        },
    ),
}
"""Architecture and numbers of the calls, from the kernel's tables of system calls."""


class _Program(ctypes.Structure):
    """``struct sock_fprog``."""

    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def _filter(architecture: int, numbers: dict[str, int]) -> bytes:
    """The classic BPF program: the calls of the table to the keeper, the refused ones to nobody, the rest as ever."""
    load, jump_equal, jump_at_least, answer = 0x20, 0x15, 0x35, 0x06
    noted = [numbers[name] for name in _CALLS if name in numbers]
    refused = [numbers[name] for name in _REFUSED]
    tests = [(jump_at_least, _X32, 2), *((jump_equal, number, 2) for number in refused)]
    tests += [(jump_equal, number, 1) for number in noted]
    lines = [(load, 0, 0, 4), (jump_equal, 0, len(tests) + 3, architecture), (load, 0, 0, 0)]
    for place, (kind, number, end) in enumerate(tests):
        lines.append((kind, len(tests) - place - 1 + end, 0, number))
    lines += [(answer, 0, 0, _ALLOW), (answer, 0, 0, _NOTIFY), (answer, 0, 0, _NO_SUCH_CALL)]
    return b"".join(struct.pack("=HBBI", code, yes, no, value) for code, yes, no, value in lines)


@dataclass
class Calls:
    """The calls of one command: what it wrote outside its own folders, and what it opened that is sealed."""

    own: Sequence[str]
    """Folders that it may write in."""
    sealed: Sequence[str]
    """What it has no business in, but for ``own``; a file or folder of either may lie inside one of the other."""
    kept: Sequence[str] = ()
    """Folders inside ``own`` that it may read alone."""
    wrote: dict[str, None] = field(default_factory=dict)
    opened: dict[str, None] = field(default_factory=dict)
    unseen: str = ""
    """Why nothing is seen; empty where everything is."""

    def __post_init__(self) -> None:
        known = _NUMBERS.get(platform.machine())
        self._ours, self._theirs = socket.socketpair()
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._program, self._number = b"", 0
        if known:
            self._program, self._number = _filter(*known), known[1]["seccomp"]
            self._names = {number: name for name, number in known[1].items()}

    def begin(self) -> None:
        """In the child, before it becomes the command: the filter, whose listener goes to the keeper."""
        program = _Program(len(self._program) // 8, self._program)
        listener = -1
        if self._program and self._libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0:
            listener = self._libc.syscall(self._number, _SET_MODE_FILTER, _NEW_LISTENER, ctypes.byref(program))
        if listener < 0:
            reason = os.strerror(ctypes.get_errno()) if self._program else f"not known for {platform.machine()}"
            self._theirs.send(reason.encode())
        else:
            socket.send_fds(self._theirs, [b"+"], [listener])
            os.close(listener)

    def follow(self) -> None:
        """In the keeper, once the command was started: note its calls from now on."""
        self._theirs.close()
        with self._ours:
            told, descriptors, _, _ = socket.recv_fds(self._ours, 200, 1)
        if descriptors:
            Thread(target=self._notes, args=(descriptors[0],), daemon=True).start()
        else:
            self.unseen = told.decode(errors="replace") or "the filter could not be set"

    def _notes(self, listener: int) -> None:
        """Until no process is left under the filter."""
        waiting = select.poll()
        waiting.register(listener, select.POLLIN)
        while all(event & select.POLLIN for _, event in waiting.poll()):
            data = bytearray(_NOTIFICATION.size)
            with suppress(OSError):  # it was ended meanwhile
                fcntl.ioctl(listener, _RECEIVE, data)
                number, pid, _, call, _, _, *arguments = _NOTIFICATION.unpack(data)
                with suppress(OSError, ValueError):  # a path that cannot be read leads nowhere
                    self._note(pid, _CALLS[self._names[call]], arguments)
                fcntl.ioctl(listener, _SEND, bytearray(_RESPONSE.pack(number, 0, 0, _CONTINUE)))

    def _note(self, pid: int, call: _Call, arguments: Sequence[int]) -> None:
        flags = os.O_WRONLY if call.flags is None else _flags(pid, call, arguments)
        writes, reads = bool(flags & _WRITES), flags & os.O_ACCMODE != os.O_WRONLY
        for folder, path in call.paths:
            place = _place(pid, None if folder is None else arguments[folder], _text(pid, arguments[path]), call)
            own, sealed = _depth(place, self.own), _depth(place, self.sealed)
            if place.startswith(_GONE) and not place.startswith(_SHARED_MEMORY) and not sealed:
                continue
            there = f"/proc/{pid}/root{place}"
            if call.makes and (folder, path) == call.paths[-1] and os.path.lexists(there):
                continue
            if writes and max(sealed, _depth(place, self.kept)) >= own:
                _keep(self.wrote, place)
            if reads and sealed > own and not Path(there).is_dir():  # who walks through everything reads nothing
                _keep(self.opened, place)

    def report(self) -> dict[str, Any]:
        """What was seen, for the keeper's own report; of shared memory only what is still there."""
        wrote = [path for path in list(self.wrote) if not path.startswith(_SHARED_MEMORY) or os.path.lexists(path)]
        return {"wrote": wrote, "opened": list(self.opened), "unseen": self.unseen}


def _keep(noted: dict[str, None], path: str) -> None:
    if len(noted) < NOTED:
        noted[path] = None


def _below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")


def _depth(path: str, folders: Sequence[str]) -> int:
    """Length of the nearest of the folders at or above the path; 0 for none. One may lie inside one of another list."""
    return max((len(folder) for folder in folders if _below(path, folder)), default=0)


def _memory(pid: int, address: int, size: int) -> bytes:
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        memory.seek(address)
        return memory.read(size)


def _text(pid: int, address: int) -> str:
    """The text at an address, up to its zero byte; it may end at the last page that is there."""
    pieces = list(_pieces(pid, address))
    return os.fsdecode(b"".join(pieces).partition(b"\0")[0])


def _pieces(pid: int, address: int) -> Iterator[bytes]:
    end = address + _PATH_BYTES
    while address < end:
        size = min(256 - address % 256, end - address)
        piece = _memory(pid, address, size)
        yield piece
        if b"\0" in piece:
            return
        address += size


def _flags(pid: int, call: _Call, arguments: Sequence[int]) -> int:
    assert call.flags is not None, "an open"
    value = arguments[call.flags]
    is_structure = call is _CALLS["openat2"]
    return int.from_bytes(_memory(pid, value, 8), "little") if is_structure else value & 0xFFFFFFFF


def _place(pid: int, folder: int | None, text: str, call: _Call) -> str:
    """The path that a call leads to, links followed, as its process sees it."""
    if not text:
        raise ValueError("an empty path is the descriptor itself")
    descriptor = _AT_FDCWD if folder is None else ctypes.c_int(folder & 0xFFFFFFFF).value
    start = Path(f"/proc/{pid}/cwd" if descriptor == _AT_FDCWD else f"/proc/{pid}/fd/{descriptor}")
    path = text if text.startswith("/") else f"{start.readlink()}/{text}"
    for own in ("/proc/self", "/proc/thread-self"):
        if _below(path, own):
            path = f"/proc/{pid}{path.removeprefix(own)}"
    if call.follows:
        return os.path.realpath(path)
    head, tail = os.path.split(path.rstrip("/"))
    return str(Path(os.path.realpath(head)) / tail)


__all__ = ["NOTED", "Calls"]
