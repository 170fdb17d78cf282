"""Objects of System V and POSIX queues: what a program makes and leaves, and what is somebody else's."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.craft.call_table import NUMBERS
from tests.runner.craft.test_calls import asked

LIBC = ctypes.CDLL(None, use_errno=True)
KEY = 0x10000000 + os.getpid()
NAME = f"carve-test-{os.getpid()}"
OPEN, UNLINK = (NUMBERS[os.uname().machine][1][name] for name in ("mq_open", "mq_unlink"))
MADE = {"shm": (4096, 0o3600), "sem": (1, 0o3600), "msg": (0o3600,)}
"""What each ``get`` takes after the key, to make a new one."""
WORDS = {"shm": "System V shared memory", "sem": "System V semaphores", "msg": "System V queue"}
BEGIN = f"""
def get(kind, key, create=0o3600):
    more = {{"shm": (4096, create), "sem": (1, create), "msg": (create,)}}[kind]
    number = getattr(libc, kind + "get")(key, *more)
    assert number >= 0, (kind, ctypes.get_errno())
    return number

def control(kind, number, command):
    more = (0, command, 0) if kind == "sem" else (command, 0)
    return getattr(libc, kind + "ctl")(number, *more) == -1 and ctypes.get_errno()

def queue(flags):
    number = libc.syscall({OPEN}, b"{NAME}", flags, 0o600, None)
    return ctypes.get_errno() if number < 0 else os.close(number)

def unlink():
    return libc.syscall({UNLINK}, b"{NAME}") and ctypes.get_errno()
"""


def remove(kind: str, number: int) -> None:
    getattr(LIBC, f"{kind}ctl")(number, *((0, 0) if kind == "sem" else (0,)), 0)


def numbers(kind: str) -> list[int]:
    """Those with the test's key."""
    lines = Path(f"/proc/sysvipc/{kind}").read_text().splitlines()[1:]
    return [int(words[1]) for words in map(str.split, lines) if int(words[0]) == KEY]


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    """Nothing of a test is left, whatever it found."""
    yield
    for kind in MADE:
        for number in numbers(kind):
            remove(kind, number)
    LIBC.syscall(UNLINK, NAME.encode())


def wait_for(path: Path) -> None:
    limit = time.monotonic() + 120
    while not path.exists():
        assert time.monotonic() < limit, f"{path} never came"
        time.sleep(0.01)


def made(kind: str) -> int:
    """One of somebody else's."""
    number: int = getattr(LIBC, f"{kind}get")(KEY, *MADE[kind])
    assert number >= 0
    return number


@pytest.mark.parametrize("kind", MADE)
def test_what_is_left_is_named(tmp_path: Path, kind: str) -> None:
    report = asked(tmp_path, BEGIN + f"get('{kind}', {KEY})")
    (number,) = numbers(kind)
    assert report == {"wrote": [f"{WORDS[kind]} {number}"], "opened": [], "reached": []}


@pytest.mark.parametrize("kind", MADE)
@pytest.mark.parametrize("key", [KEY, 0])
def test_what_is_made_used_and_removed_is_its_own(tmp_path: Path, kind: str, key: int) -> None:
    program = f"""
number = get("{kind}", {key})
text = ctypes.create_string_buffer(b"12345678" + b"x")
if "{kind}" == "shm":
    libc.shmat.restype = ctypes.c_void_p
    assert libc.shmat(number, None, 0) not in (None, ctypes.c_void_p(-1).value)
if "{kind}" == "sem":
    assert libc.semop(number, ctypes.create_string_buffer(bytes((0, 0, 1, 0, 0, 0))), 1) == 0
if "{kind}" == "msg":
    assert libc.msgsnd(number, text, 1, 0) == 0 and libc.msgrcv(number, text, 1, 0, 0) == 1
child = subprocess.run(["true"], close_fds=False)
assert not control("{kind}", number, 0)
"""
    assert asked(tmp_path, BEGIN + program) == {"wrote": [], "opened": [], "reached": []}


@pytest.mark.parametrize("kind", MADE)
@pytest.mark.parametrize("create", [0, 0o1600])
def test_what_is_somebody_elses_is_named_and_out_of_reach(tmp_path: Path, kind: str, create: int) -> None:
    number = made(kind)
    program = f"""
number = get("{kind}", {KEY}, {create})
assert control("{kind}", number, 0) == 1
if "{kind}" == "shm":
    libc.shmat.restype = ctypes.c_void_p
    assert libc.shmat(number, None, 0) == ctypes.c_void_p(-1).value
if "{kind}" == "sem":
    assert libc.semop(number, ctypes.create_string_buffer(bytes((0, 0, 1, 0, 0, 0))), 1) == -1
if "{kind}" == "msg":
    assert libc.msgsnd(number, ctypes.create_string_buffer(b"12345678x"), 1, 0) == -1
"""
    report = asked(tmp_path, BEGIN + program)
    assert report == {"wrote": [], "opened": [], "reached": [f"{WORDS[kind]} {number}"]}
    assert numbers(kind) == [number]


@pytest.mark.parametrize("kind", MADE)
def test_who_looks_at_all_of_them_touches_none(tmp_path: Path, kind: str) -> None:
    number = made(kind)
    program = f"""
space = ctypes.create_string_buffer(4096)
more = (0, 2, space) if "{kind}" == "sem" else (2, space)
assert libc.{kind}ctl({number}, *more) == 0
pathlib.Path("/proc/sysvipc/{kind}").read_text()
"""
    assert asked(tmp_path, BEGIN + program) == {"wrote": [], "opened": [], "reached": []}


def test_what_somebody_else_makes_meanwhile_is_not_the_programs(tmp_path: Path) -> None:
    """It asked for another key."""
    begun, done = tmp_path / "begun", tmp_path / "done"

    def make() -> None:
        wait_for(begun)
        made("msg")
        done.touch()

    program = f"""
import time
control("msg", get("msg", {KEY + 1}), 0)
pathlib.Path({str(begun)!r}).touch()
while not pathlib.Path({str(done)!r}).exists():
    time.sleep(0.01)
"""
    other = threading.Thread(target=make)
    other.start()
    report = asked(tmp_path, BEGIN + program)
    other.join()
    assert report == {"wrote": ["begun"], "opened": [], "reached": []}
    assert len(numbers("msg")) == 1


def test_a_queue_that_is_left_is_named_and_one_that_is_removed_is_not(tmp_path: Path) -> None:
    make = "assert not queue(os.O_RDWR | os.O_CREAT)\n"
    assert asked(tmp_path, BEGIN + make + "assert not queue(os.O_RDONLY) and not unlink()") == {
        "wrote": [],
        "opened": [],
        "reached": [],
    }
    assert asked(tmp_path, BEGIN + make)["wrote"] == [f"/dev/mqueue/{NAME}"]


def test_a_queue_of_somebody_else_is_named(tmp_path: Path) -> None:
    descriptor = LIBC.syscall(OPEN, NAME.encode(), os.O_RDWR | os.O_CREAT, 0o600, None)
    os.close(descriptor)
    report = asked(tmp_path, BEGIN + "queue(os.O_RDONLY); unlink()")
    assert report == {"wrote": [], "opened": [], "reached": [f"queue {NAME}"]}
    assert asked(tmp_path, BEGIN + "assert queue(os.O_RDONLY) == 2") == {"wrote": [], "opened": [], "reached": []}
