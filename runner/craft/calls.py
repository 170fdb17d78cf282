"""What the processes of a session ask the kernel to change or to reach that is not theirs, read as it is asked.

A seccomp filter hands these calls to the keeper, which notes where each leads and lets it go on (seccomp_unotify(2),
Linux 5.5, no privilege; nobody can take the filter off again). A call on a process that is not the session's is refused
as well: its number cannot be changed afterwards. A path can, between this look and the kernel's own, so of files this
names what is done in the open, and the walls are bubblewrap's. Nobody moves the paths themselves: mounting is refused.
What a service does that was asked before the session (cron, a container that runs) is not its call and is not seen.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import platform
import select
import socket
import stat
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from typing import Any, TypeVar

from runner.craft.call_table import (
    CALLS,
    NUMBERS,
    Call,
    DescriptorCall,
    ObjectCall,
    PathCall,
    ProcessCall,
    QueueCall,
    SocketCall,
    program,
)
from runner.craft.devices import changes_nothing
from runner.craft.others import Others
from runner.craft.queues import QUEUES, Queues

_PR_SET_NO_NEW_PRIVS = 38
_SET_MODE_FILTER, _NEW_LISTENER = 1, 8
_RECEIVE, _SEND = 0xC0502100, 0xC0182101
_CONTINUE = 1
_NOTIFICATION, _RESPONSE = struct.Struct("=QIIiIQ6Q"), struct.Struct("=QqiI")
_AT_FDCWD = -100
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_PATH_BYTES = 4096
_SHARED_MEMORY = "/dev/shm"
_LASTING = (f"{_SHARED_MEMORY}/", f"{QUEUES}/")
"""Where files are made and removed as a matter of course; what was left there counts."""
_OWN_FILES = {"/dev/fd": "fd", "/dev/stdin": "fd/0", "/dev/stdout": "fd/1", "/dev/stderr": "fd/2"}
"""Links to what a process has open itself, below its own folder of ``/proc``."""
_NAMES = (
    *("/run/nscd/", "/run/systemd/userdb/", "/run/systemd/resolve/", "/run/avahi-daemon/", "/run/systemd/journal/"),
    *("/dev/log", "/run/uuidd/"),
)
"""Sockets of services that answer who and where somebody is, or keep a log: libraries ask them unbidden."""
_SOCKET_BYTES = 110
"""``struct sockaddr_un``."""
T = TypeVar("T")
NOTED = 40
"""How many paths of a kind are kept."""


class _Program(ctypes.Structure):
    """``struct sock_fprog``."""

    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


@dataclass
class Calls:
    """The calls of one command: what it wrote outside its own folders, opened that is sealed, and reached."""

    own: Sequence[str]
    """Folders that it may write in."""
    sealed: Sequence[str]
    """What it has no business in, but for ``own``; a file or folder of either may lie inside one of the other."""
    kept: Sequence[str] = ()
    """Folders inside ``own`` that it may read alone."""
    wrote: dict[str, None] = field(default_factory=dict)
    opened: dict[str, None] = field(default_factory=dict)
    reached: dict[str, None] = field(default_factory=dict)
    """Processes and sockets of others."""
    unseen: str = ""
    """Why nothing is seen; empty where everything is."""
    _bound: set[str] = field(default_factory=set)
    """Names without a file that its own sockets have."""

    def __post_init__(self) -> None:
        known = NUMBERS.get(platform.machine())
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._over = Event()
        self._others = Others(os.getpid())
        self._program, self._number = b"", 0
        if known:
            self._program, self._number = program(*known), known[1]["seccomp"]
            self._names = {number: name for name, number in known[1].items()}
        self._queues = Queues(os.getpid(), known[1]["mq_open"] if known else -1)

    def start(self, begin: Callable[[], T]) -> T:
        """What ``begin`` starts, and all that it starts in turn, is under the filter from its first moment.

        It runs in a thread of its own, which alone is under the filter, too, and stays: a child that dies with its
        parent dies with the thread that started it. Raises what ``begin`` raises.
        """
        listening: Future[int] = Future()
        result: Future[T] = Future()
        self._thread = Thread(target=self._under, args=(begin, listening, result), daemon=True)
        self._thread.start()
        if (listener := listening.result()) >= 0:  # a thread that the other one starts would be under the filter, too
            Thread(target=self._notes, args=(listener,), daemon=True).start()
        return result.result()

    def close(self) -> None:
        """End the thread that is under the filter; what it started dies where it was to die with it."""
        self._over.set()
        self._thread.join()

    def _under(self, begin: Callable[[], T], listening: Future[int], result: Future[T]) -> None:
        listener = -1
        if self._program and self._libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0:
            filters = _Program(len(self._program) // 8, self._program)
            listener = self._libc.syscall(self._number, _SET_MODE_FILTER, _NEW_LISTENER, ctypes.byref(filters))
        if listener < 0:
            self.unseen = os.strerror(ctypes.get_errno()) if self._program else f"not known for {platform.machine()}"
        listening.set_result(listener)
        try:
            result.set_result(begin())
        except Exception as error:  # noqa: BLE001 (raised where it is waited for)
            result.set_exception(error)
        self._over.wait()

    def _notes(self, listener: int) -> None:
        """Answer every call, until nothing is left under the filter."""
        waiting = select.poll()
        waiting.register(listener, select.POLLIN)
        while all(event & select.POLLIN for _, event in waiting.poll()):
            data = bytearray(_NOTIFICATION.size)
            with suppress(OSError):  # it was ended meanwhile
                fcntl.ioctl(listener, _RECEIVE, data)
                number, pid, _, call, _, _, *arguments = _NOTIFICATION.unpack(data)
                known = CALLS[self._names[call]]
                try:
                    refused = self._note(pid, known, arguments)
                except PermissionError:
                    refused = errno.EPERM  # of a process that nobody may look into
                except (OSError, ValueError):
                    refused = 0  # what is not there leads nowhere
                if isinstance(known, ProcessCall) and not known.kept:
                    refused = refused or errno.ENOSYS
                answer = (0, -refused, 0) if refused else (0, 0, _CONTINUE)
                fcntl.ioctl(listener, _SEND, bytearray(_RESPONSE.pack(number, *answer)))

    def _note(self, pid: int, call: Call, arguments: Sequence[int]) -> int:
        """Note a call; the error it is refused with, or 0."""
        if isinstance(call, ProcessCall):
            other = self._others.reached(pid, call, arguments)
            if other:
                _keep(self.reached, other)
            return errno.EPERM if other else 0
        if isinstance(call, ObjectCall | QueueCall):
            return errno.EPERM if self._shared(pid, call, arguments) else 0
        if isinstance(call, SocketCall):
            self._socket(pid, call, arguments)
        elif isinstance(call, DescriptorCall):
            self._file(pid, _opened(pid, arguments[0]), writes=True, reads=False)
        else:
            self._paths(pid, call, arguments)
        return 0

    def _shared(self, pid: int, call: ObjectCall | QueueCall, arguments: Sequence[int]) -> bool:
        """An object's number cannot be changed after this look, and a name can."""
        flags = None if call.flags is None else arguments[call.flags]
        if isinstance(call, ObjectCall):
            other = self._queues.reached(call, arguments[0], flags or 0)
        else:
            other = self._queues.queue(_text(pid, arguments[0]), flags)
        if other:
            _keep(self.reached, other)
        return bool(other) and isinstance(call, ObjectCall)

    def _paths(self, pid: int, call: PathCall, arguments: Sequence[int]) -> None:
        flags = os.O_WRONLY if call.flags is None else _flags(pid, call, arguments)
        writes, reads = bool(flags & _WRITES), flags & os.O_ACCMODE != os.O_WRONLY
        device = call.mode is not None and stat.S_IFMT(arguments[call.mode]) in (stat.S_IFBLK, stat.S_IFCHR)
        for folder, path in call.paths:
            place = _place(pid, None if folder is None else arguments[folder], arguments[path], follows=call.follows)
            makes = call.makes and (folder, path) == call.paths[-1]
            if makes and os.path.lexists(f"/proc/{pid}/root{place}"):
                continue
            if device:
                _keep(self.wrote, place)
            self._file(pid, place, writes=writes, reads=reads, flags=None if call.flags is None else flags)

    def _file(self, pid: int, place: str, *, writes: bool, reads: bool, flags: int | None = None) -> None:
        """What a call leads to; ``flags`` are those of an open, and none where it changes the file itself."""
        own, sealed = _depth(place, self.own), _depth(place, self.sealed)
        if not sealed and self._is_harmless(pid, place, flags):
            return
        if writes and max(sealed, _depth(place, self.kept)) >= own:
            _keep(self.wrote, place)
        # Who walks through everything reads nothing.
        if reads and sealed > own and not Path(f"/proc/{pid}/root{place}").is_dir():
            _keep(self.opened, place)

    def _is_harmless(self, pid: int, place: str, flags: int | None) -> bool:
        """Of the kernel's own files: those of a process about itself, and devices that hold nothing."""
        if _below(place, "/proc"):
            process = place.split("/")[2:3]
            return bool(process) and process[0].isdigit() and self._others.own(int(process[0]))
        return changes_nothing(place, f"/proc/{pid}/root", flags, self._others)

    def _socket(self, pid: int, call: SocketCall, arguments: Sequence[int]) -> None:
        address = arguments[call.address]
        length = 0 if call.length is None else arguments[call.length] & 0xFFFFFFFF
        if call.length is None:  # the header of a message begins with address and length
            address, length = struct.unpack("=QI", _memory(pid, address, 12))
        if not address or length <= 2:  # a family and no name: any
            return
        raw = _memory(pid, address, min(length, _SOCKET_BYTES))
        if int.from_bytes(raw[:2], sys.byteorder) != socket.AF_UNIX:
            return
        if raw[2] == 0:
            self._nameless(pid, os.fsdecode(raw[3:]), binds=call.binds)
            return
        place = _path(pid, None, os.fsdecode(raw[2:].partition(b"\0")[0]), follows=not call.binds)
        there = os.path.lexists(f"/proc/{pid}/root{place}")
        if call.binds and not there:
            self._file(pid, place, writes=True, reads=False)
        elif not call.binds and there and not _depth(place, self.own) and not place.startswith(_NAMES):
            _keep(self.reached, place)

    def _nameless(self, pid: int, name: str, *, binds: bool) -> None:
        """A name without a file, which only its own network knows."""
        if binds:
            self._bound.add(name)
        elif name not in self._bound and f"@{name}" in Path(f"/proc/{pid}/net/unix").read_text(errors="replace"):
            _keep(self.reached, f"@{name}")

    def report(self) -> dict[str, Any]:
        """What was seen, for the keeper's own report; of shared memory and queues only what is still there."""
        wrote = [path for path in list(self.wrote) if not path.startswith(_LASTING) or os.path.lexists(path)]
        if not _depth(_SHARED_MEMORY, self.own):  # a sandbox takes its own along
            wrote += [left for left in self._queues.left() if left not in wrote]
        return {
            "wrote": wrote,
            "opened": list(self.opened),
            "reached": list(self.reached),
            "unseen": self.unseen,
            "all": len(self.wrote) < NOTED,
        }


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


def _flags(pid: int, call: PathCall, arguments: Sequence[int]) -> int:
    assert call.flags is not None, "an open"
    value = arguments[call.flags]
    is_structure = call is CALLS["openat2"]
    return int.from_bytes(_memory(pid, value, 8), "little") if is_structure else value & 0xFFFFFFFF


def _place(pid: int, folder: int | None, address: int, *, follows: bool) -> str:
    """The path that a call leads to; without a path of its own it is about the descriptor itself."""
    text = _text(pid, address) if address else ""
    if text:
        return _path(pid, folder, text, follows=follows)
    if folder is None:
        raise ValueError("no path at all")
    return _opened(pid, folder)


def _path(pid: int, folder: int | None, text: str, *, follows: bool) -> str:
    """A path, links followed, as its process sees it."""
    descriptor = _AT_FDCWD if folder is None else ctypes.c_int(folder & 0xFFFFFFFF).value
    start = Path(f"/proc/{pid}/cwd" if descriptor == _AT_FDCWD else f"/proc/{pid}/fd/{descriptor}")
    path = text if text.startswith("/") else f"{start.readlink()}/{text}"
    for link, there in _OWN_FILES.items():
        if _below(path, link):
            path = f"/proc/{pid}/{there}{path.removeprefix(link)}"
    for own in ("/proc/self", "/proc/thread-self"):
        if _below(path, own):
            path = f"/proc/{pid}{path.removeprefix(own)}"
    if follows:
        return os.path.realpath(path)
    head, tail = os.path.split(path.rstrip("/"))
    return str(Path(os.path.realpath(head)) / tail).replace("//", "/", 1)


def _opened(pid: int, descriptor: int) -> str:
    """What an open file is called. Raises ValueError for one that has no name in the file system."""
    if ctypes.c_int(descriptor & 0xFFFFFFFF).value == _AT_FDCWD:
        return str(Path(f"/proc/{pid}/cwd").readlink())
    name = str(Path(f"/proc/{pid}/fd/{ctypes.c_int(descriptor & 0xFFFFFFFF).value}").readlink())
    if not name.startswith("/") or name.startswith("/memfd:") or name.endswith(" (deleted)"):
        raise ValueError("no file")
    return name


__all__ = ["NOTED", "Calls"]
