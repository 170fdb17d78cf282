"""The system calls by which a process changes what is not its own: their numbers, and where their arguments lie.

From the kernel's tables of system calls (``arch/x86/entry/syscalls/syscall_64.tbl``, ``scripts/syscall.tbl``) and the
manual page of each call.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

ALLOW, NOTIFY = 0x7FFF0000, 0x7FC00000
_ERROR = 0x00050000
_NO_SUCH_CALL, _NOT_PERMITTED = _ERROR | 38, _ERROR | 1
_X32 = 0x40000000
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _ANSWER = 0x20, 0x15, 0x35, 0x45, 0x06
"""Instructions of classic BPF."""


@dataclass(frozen=True)
class When:
    """Only with one of these values or bits in an argument; without any, with every value but zero."""

    argument: int
    values: tuple[int, ...] = ()
    bits: int = 0


@dataclass(frozen=True)
class PathCall:
    """Where the arguments of a call lie: (folder descriptor or none, path) pairs, and the flags of an open."""

    paths: tuple[tuple[int | None, int], ...]
    flags: int | None = None
    follows: bool = True
    """Whether a link in the last place is followed."""
    makes: bool = False
    """Whether it does nothing where its last path stands already: ``mkdir -p`` asks for every folder above."""
    mode: int | None = None
    """What kind of file is made: a device of one's own is still the machine's."""
    when: When | None = None


@dataclass(frozen=True)
class DescriptorCall:
    """What an open file is changed by; opened for reading alone, nothing else would tell of it."""

    when: When | None = None


@dataclass(frozen=True)
class ProcessCall:
    """A call on another process: the argument with its number, or with a descriptor of it."""

    process: int
    second: int | None = None
    """Argument with the number of one more."""
    signal: int | None = None
    """Argument with the signal; signal 0 only asks whether the process is there."""
    is_descriptor: bool = False
    group: bool = False
    """Whether a negative number is a group of processes, and -1 all of them."""
    kind: int | None = None
    """Argument that says what the number is: ``first_kind`` a process, the next one a group, the third a user."""
    first_kind: int = 0
    kept: bool = True
    """Whether what it is about stays what the keeper saw; a descriptor of anything can be put in the place of another
    meanwhile, so such a call is refused for one's own processes as well, as by a kernel that does not have it."""
    when: When | None = None


@dataclass(frozen=True)
class SocketCall:
    """A call with the address of a socket."""

    address: int
    length: int | None
    """None: the address is the first of a message's header."""
    binds: bool = False
    when: When | None = None


@dataclass(frozen=True)
class ObjectCall:
    """A call on a System V object: its first argument is the key of one, with ``flags``, or else its number."""

    kind: str
    """``shm``, ``sem`` or ``msg``, as below ``/proc/sysvipc``."""
    flags: int | None = None
    when: When | None = None


@dataclass(frozen=True)
class QueueCall:
    """A call on a POSIX queue, whose name is its first argument."""

    flags: int | None = None
    when: When | None = None


Call = PathCall | DescriptorCall | ProcessCall | SocketCall | ObjectCall | QueueCall

_AT, _FIRST = ((0, 1),), ((None, 0),)
_AT_MAKES = PathCall(_AT, follows=False, makes=True)
_MAKES = PathCall(_FIRST, follows=False, makes=True)
_CHANGES, _CHANGES_LINK, _CHANGES_AT = PathCall(_FIRST), PathCall(_FIRST, follows=False), PathCall(_AT)
_FLAGS_OF_FILE = (0x40086602, 0x401C5820)
"""``FS_IOC_SETFLAGS`` and ``FS_IOC_FSSETXATTR``."""
_OF_A_TERMINAL = (0x540E, 0x5412, 0x541C, 0x541D, 0x5437)
"""``TIOCSCTTY``, ``TIOCSTI``, ``TIOCLINUX``, ``TIOCCONS`` and ``TIOCVHANGUP``: to take, type into or end it."""
_ATTACH, _SEIZE = 16, 0x4206
_OWNER, _OWNER_IN_MEMORY = 8, 15
"""``F_SETOWN`` and ``F_SETOWN_EX``: who is sent the signals about a file."""
_OWNER_OF_SOCKET = (0x8901, 0x8902)
"""``FIOSETOWN`` and ``SIOCSPGRP``."""
_REMOVE_SET = (0, 1)
"""``IPC_RMID`` and ``IPC_SET``; beside them stand locking and setting values, and looking is nobody's offence."""

CALLS: dict[str, Call] = {
    "openat": PathCall(_AT, flags=2),
    "openat2": PathCall(_AT, flags=2),
    "truncate": _CHANGES,
    "renameat": PathCall(((0, 1), (2, 3)), follows=False),
    "renameat2": PathCall(((0, 1), (2, 3)), follows=False),
    "linkat": PathCall(((0, 1), (2, 3)), follows=False, makes=True),
    "symlinkat": PathCall(((1, 2),), follows=False, makes=True),
    "mkdirat": _AT_MAKES,
    "mknodat": PathCall(_AT, follows=False, makes=True, mode=2),
    "unlinkat": PathCall(_AT, follows=False),
    "fchmodat": _CHANGES_AT,
    "fchmodat2": _CHANGES_AT,
    "fchownat": _CHANGES_AT,
    "utimensat": _CHANGES_AT,
    "setxattrat": _CHANGES_AT,
    "removexattrat": _CHANGES_AT,
    "setxattr": _CHANGES,
    "lsetxattr": _CHANGES_LINK,
    "removexattr": _CHANGES,
    "lremovexattr": _CHANGES_LINK,
    "open": PathCall(_FIRST, flags=1),
    "creat": _CHANGES,
    "rename": PathCall(((None, 0), (None, 1)), follows=False),
    "link": PathCall(((None, 0), (None, 1)), follows=False, makes=True),
    "symlink": PathCall(((None, 1),), follows=False, makes=True),
    "mkdir": _MAKES,
    "mknod": PathCall(_FIRST, follows=False, makes=True, mode=1),
    "unlink": _CHANGES_LINK,
    "rmdir": _CHANGES_LINK,
    "chmod": _CHANGES,
    "chown": _CHANGES,
    "lchown": _CHANGES_LINK,
    "utime": _CHANGES,
    "utimes": _CHANGES,
    "futimesat": _CHANGES_AT,
    "fchmod": DescriptorCall(),
    "fchown": DescriptorCall(),
    "fsetxattr": DescriptorCall(),
    "fremovexattr": DescriptorCall(),
    "ioctl": DescriptorCall(When(1, (*_FLAGS_OF_FILE, *_OF_A_TERMINAL))),
    "kill": ProcessCall(0, signal=1, group=True),
    "tkill": ProcessCall(0, signal=1),
    "tgkill": ProcessCall(0, signal=2),
    "rt_sigqueueinfo": ProcessCall(0, signal=1),
    "rt_tgsigqueueinfo": ProcessCall(0, signal=2),
    "fcntl": ProcessCall(2, group=True, when=When(1, (_OWNER,))),
    "pidfd_open": ProcessCall(0),
    "pidfd_send_signal": ProcessCall(0, signal=1, is_descriptor=True, kept=False),
    "pidfd_getfd": ProcessCall(0, is_descriptor=True),
    "process_mrelease": ProcessCall(0, is_descriptor=True),
    "kcmp": ProcessCall(0, second=1),
    "perf_event_open": ProcessCall(1, group=True),
    "ptrace": ProcessCall(1, when=When(0, (_ATTACH, _SEIZE))),
    "process_vm_readv": ProcessCall(0),
    "process_vm_writev": ProcessCall(0),
    "prlimit64": ProcessCall(0, when=When(0)),
    "setpriority": ProcessCall(1, kind=0),
    "ioprio_set": ProcessCall(1, kind=0, first_kind=1),
    "sched_setaffinity": ProcessCall(0, when=When(0)),
    "sched_setscheduler": ProcessCall(0, when=When(0)),
    "sched_setparam": ProcessCall(0, when=When(0)),
    "sched_setattr": ProcessCall(0, when=When(0)),
    "migrate_pages": ProcessCall(0, when=When(0)),
    "move_pages": ProcessCall(0, when=When(0)),
    "process_madvise": ProcessCall(0, is_descriptor=True),
    "bind": SocketCall(1, 2, binds=True),
    "connect": SocketCall(1, 2),
    "sendto": SocketCall(4, 5, when=When(4)),
    "sendmsg": SocketCall(1, None),
    "shmget": ObjectCall("shm", flags=2),
    "shmat": ObjectCall("shm"),
    "shmctl": ObjectCall("shm", when=When(1, (*_REMOVE_SET, 11, 12))),
    "semget": ObjectCall("sem", flags=2),
    "semop": ObjectCall("sem"),
    "semtimedop": ObjectCall("sem"),
    "semctl": ObjectCall("sem", when=When(2, (*_REMOVE_SET, 16, 17))),
    "msgget": ObjectCall("msg", flags=1),
    "msgsnd": ObjectCall("msg"),
    "msgrcv": ObjectCall("msg"),
    "msgctl": ObjectCall("msg", when=When(1, _REMOVE_SET)),
    "mq_open": QueueCall(flags=1),
    "mq_unlink": QueueCall(),
}
"""Calls that the keeper is told of."""
ABSENT = ("io_uring_setup", "open_by_handle_at", "add_key", "request_key", "keyctl", "clone3")
"""Ways to open files that no filter sees, the keys that every process of a user shares, and the way to start a process
whose flags no filter sees; all go on without them, the last one by ``clone``."""
FORBIDDEN = (
    *("mount", "umount2", "pivot_root", "chroot", "setns", "open_tree", "move_mount", "fsopen", "fsmount"),
    *("mount_setattr", "swapon", "acct", "reboot", "init_module", "finit_module", "kexec_load", "settimeofday"),
    *("clock_settime", "sethostname", "setdomainname", "swapoff", "delete_module", "kexec_file_load", "bpf"),
    *("userfaultfd", "fanotify_init"),
)
"""What would make a path lead elsewhere than it says, stop who reads a process's memory or opens a file, or change the
machine itself; for administrators only anyway."""
_NEW_SPACES = 0x7E020000
"""``CLONE_NEWNS``, ``NEWCGROUP``, ``NEWUTS``, ``NEWIPC``, ``NEWUSER``, ``NEWPID`` and ``NEWNET``."""
_NEW_TIME, _SHARE_A_CORE = 0x80, 62
REFUSED = {
    "clone": When(0, bits=_NEW_SPACES),
    "unshare": When(0, bits=_NEW_SPACES | _NEW_TIME),
    "fcntl": When(1, (_OWNER_IN_MEMORY,)),
    "ioctl": When(1, _OWNER_OF_SOCKET),
    "prctl": When(0, (_SHARE_A_CORE,)),
}
"""Not permitted with these arguments: name spaces where numbers and names mean others than the keeper sees, and a
process that is named where the keeper could not hold on to it (``F_SETOWN`` names one by its number)."""
_PR_SET_DUMPABLE = 4
PRETENDED = {"prctl": When(0, (_PR_SET_DUMPABLE,))}
"""Answered with success and not done: a process that nobody may look into would ask for paths that nobody can read."""
NUMBERS = {
    "x86_64": (
        0xC000003E,
        {
            **{"open": 2, "creat": 85, "openat": 257, "openat2": 437, "truncate": 76, "rename": 82, "renameat": 264},
            **{"renameat2": 316, "link": 86, "linkat": 265, "symlink": 88, "symlinkat": 266, "mkdir": 83},
            **{"mkdirat": 258, "mknod": 133, "mknodat": 259, "unlink": 87, "unlinkat": 263, "rmdir": 84, "chmod": 90},
            **{"fchmod": 91, "fchmodat": 268, "fchmodat2": 452, "chown": 92, "fchown": 93, "lchown": 94},
            **{"fchownat": 260, "utime": 132, "utimes": 235, "futimesat": 261, "utimensat": 280, "setxattr": 188},
            **{"lsetxattr": 189, "fsetxattr": 190, "removexattr": 197, "lremovexattr": 198, "fremovexattr": 199},
            **{"setxattrat": 463, "removexattrat": 466, "ioctl": 16, "kill": 62, "tkill": 200, "tgkill": 234},
            **{"rt_sigqueueinfo": 129, "rt_tgsigqueueinfo": 297, "pidfd_send_signal": 424, "pidfd_getfd": 438},
            **{"ptrace": 101, "process_vm_readv": 310, "process_vm_writev": 311, "prlimit64": 302, "bind": 49},
            **{"connect": 42, "sendto": 44, "sendmsg": 46, "io_uring_setup": 425, "open_by_handle_at": 304},
            **{"mount": 165, "umount2": 166, "pivot_root": 155, "chroot": 161, "setns": 308, "open_tree": 428},
            **{"move_mount": 429, "fsopen": 430, "fsmount": 432, "mount_setattr": 442, "swapon": 167, "acct": 163},
            **{"reboot": 169, "init_module": 175, "finit_module": 313, "kexec_load": 246, "settimeofday": 164},
            **{"clock_settime": 227, "prctl": 157, "seccomp": 317, "setpriority": 141, "ioprio_set": 251},
            **{"sched_setaffinity": 203, "sched_setscheduler": 144, "sched_setparam": 142, "sched_setattr": 314},
            **{"migrate_pages": 256, "move_pages": 279, "process_madvise": 440, "shmget": 29, "shmat": 30},
            **{"shmctl": 31, "semget": 64, "semop": 65, "semctl": 66, "msgget": 68, "msgsnd": 69, "msgrcv": 70},
            **{"msgctl": 71, "semtimedop": 220, "mq_open": 240, "mq_unlink": 241, "add_key": 248, "request_key": 249},
            **{"keyctl": 250, "sethostname": 170, "setdomainname": 171, "swapoff": 168, "delete_module": 176},
            **{"kexec_file_load": 320, "fcntl": 72, "pidfd_open": 434, "process_mrelease": 448, "kcmp": 312},
            **{"perf_event_open": 298, "clone": 56, "clone3": 435, "unshare": 272, "bpf": 321, "userfaultfd": 323},
            **{"fanotify_init": 300},
        },
    ),
    "aarch64": (
        0xC00000B7,
        {
            **{"openat": 56, "openat2": 437, "truncate": 45, "renameat": 38, "renameat2": 276, "linkat": 37},
            **{"symlinkat": 36, "mkdirat": 34, "mknodat": 33, "unlinkat": 35, "fchmod": 52, "fchmodat": 53},
            **{"fchmodat2": 452, "fchownat": 54, "fchown": 55, "utimensat": 88, "setxattr": 5, "lsetxattr": 6},
            **{"fsetxattr": 7, "removexattr": 14, "lremovexattr": 15, "fremovexattr": 16, "setxattrat": 463},
            **{"removexattrat": 466, "ioctl": 29, "kill": 129, "tkill": 130, "tgkill": 131, "rt_sigqueueinfo": 138},
            **{"rt_tgsigqueueinfo": 240, "pidfd_send_signal": 424, "pidfd_getfd": 438, "ptrace": 117},
            **{"process_vm_readv": 270, "process_vm_writev": 271, "prlimit64": 261, "bind": 200, "connect": 203},
            **{"sendto": 206, "sendmsg": 211, "io_uring_setup": 425, "open_by_handle_at": 265, "mount": 40},
            **{"umount2": 39, "pivot_root": 41, "chroot": 51, "setns": 268, "open_tree": 428, "move_mount": 429},
            **{"fsopen": 430, "fsmount": 432, "mount_setattr": 442, "swapon": 224, "acct": 89, "reboot": 142},
            **{"init_module": 105, "finit_module": 273, "kexec_load": 104, "settimeofday": 170, "clock_settime": 112},
            **{"prctl": 167, "seccomp": 277, "setpriority": 140, "ioprio_set": 30, "sched_setaffinity": 122},
            **{"sched_setscheduler": 119, "sched_setparam": 118, "sched_setattr": 274, "migrate_pages": 238},
            **{"move_pages": 239, "process_madvise": 440, "mq_open": 180, "mq_unlink": 181, "msgget": 186},
            **{"msgctl": 187, "msgrcv": 188, "msgsnd": 189, "semget": 190, "semctl": 191, "semtimedop": 192},
            **{"semop": 193, "shmget": 194, "shmctl": 195, "shmat": 196, "add_key": 217, "request_key": 218},
            **{"keyctl": 219, "sethostname": 161, "setdomainname": 162, "swapoff": 225, "delete_module": 106},
            **{"kexec_file_load": 294, "fcntl": 25, "pidfd_open": 434, "process_mrelease": 448, "kcmp": 272},
            **{"perf_event_open": 241, "clone": 220, "clone3": 435, "unshare": 97, "bpf": 280, "userfaultfd": 282},
            **{"fanotify_init": 262},
        },
    ),
}
"""Machine to the architecture's name for the kernel, and the number of each call that it has."""


def program(architecture: int, numbers: dict[str, int]) -> bytes:
    """The BPF program of the filter: the calls of the table to the keeper, the closed ones to nobody, the rest as ever.

    A call of another architecture's table (32 bits, x32) has other numbers, so there is no such call.
    """
    lines = [(_LOAD, 0, 0, 4), (_EQUAL, 1, 0, architecture), (_ANSWER, 0, 0, _NO_SUCH_CALL), (_LOAD, 0, 0, 0)]
    lines += [(_AT_LEAST, 0, 1, _X32), (_ANSWER, 0, 0, _NO_SUCH_CALL)]
    for names, answer in ((ABSENT, _NO_SUCH_CALL), (FORBIDDEN, _NOT_PERMITTED)):
        for name in names:
            lines += [(_EQUAL, 0, 1, numbers[name]), (_ANSWER, 0, 0, answer)]
    for name, only in REFUSED.items():
        body = [*_refused(only), (_LOAD, 0, 0, 0)]
        lines += [(_EQUAL, 0, len(body), numbers[name]), *body]
    told = [(name, call.when, NOTIFY) for name, call in CALLS.items() if name in numbers]
    for name, when, answer in (*told, *((name, when, _ERROR) for name, when in PRETENDED.items())):
        body = [*_told(when), (_ANSWER, 0, 0, answer)]
        lines += [(_EQUAL, 0, len(body), numbers[name]), *body]
    lines.append((_ANSWER, 0, 0, ALLOW))
    return b"".join(struct.pack("=HBBI", *line) for line in lines)


def _refused(when: When) -> Iterator[tuple[int, int, int, int]]:
    """Instructions that refuse a call where the condition holds, and fall through where it does not."""
    yield _LOAD, 0, 0, 16 + 8 * when.argument
    tests = [(_ANY_BIT, when.bits)] if when.bits else [(_EQUAL, value) for value in when.values]
    for test, value in tests:
        yield test, 0, 1, value
        yield _ANSWER, 0, 0, _NOT_PERMITTED


def _told(when: When | None) -> Iterator[tuple[int, int, int, int]]:
    """Instructions that let a call go on where the condition does not hold, and fall through where it does."""
    if when is None:
        return
    low = 16 + 8 * when.argument
    yield _LOAD, 0, 0, low
    if when.values:
        for place, value in enumerate(when.values):
            yield _EQUAL, len(when.values) - place, 0, value
        yield _ANSWER, 0, 0, ALLOW
        return
    yield _EQUAL, 0, 3, 0
    yield _LOAD, 0, 0, low + 4
    yield _EQUAL, 0, 1, 0
    yield _ANSWER, 0, 0, ALLOW


__all__ = [
    "CALLS",
    "NUMBERS",
    "Call",
    "DescriptorCall",
    "ObjectCall",
    "PathCall",
    "ProcessCall",
    "QueueCall",
    "SocketCall",
    "program",
]
