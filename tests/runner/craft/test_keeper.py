"""The process around a session's command, started as the runner starts it: what it passes on, ends and reports."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from runner.paths import source_root

PATIENCE = 120.0
HEAD = "import os, pathlib, resource, signal, subprocess, sys, time\n"
STAYS = "pathlib.Path('begun').write_text(f'{os.getpid()}\\n')\nwhile True: time.sleep(1)"


@dataclass(frozen=True)
class Kept:
    """A keeper at work, its command in ``folder``."""

    process: subprocess.Popen[bytes]
    folder: Path
    report: int

    def told(self) -> dict[str, Any]:
        """Its report; what the command printed is in ``words``."""
        words = self.process.stdout.read().decode() if self.process.stdout else ""
        assert self.process.wait(PATIENCE) == 0
        with os.fdopen(os.dup(self.report)) as stream:
            found: dict[str, Any] = json.loads(stream.readline())
        return found | {"words": words}

    def say(self, words: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(words)
        self.process.stdin.flush()

    def pid_in(self, name: str) -> int:
        """A number that the command wrote down, once all of it is there."""
        limit = time.monotonic() + PATIENCE
        while not (text := (self.folder / name).read_text() if (self.folder / name).exists() else "").endswith("\n"):
            assert time.monotonic() < limit, f"{name} never came"
            time.sleep(0.02)
        return int(text)


@contextmanager
def kept(tmp_path: Path, program: str = "", argv: list[str] | None = None, **more: Any) -> Iterator[Kept]:
    """A keeper that was told to start a Python program."""
    folder = tmp_path / "clone"
    for name in ("clone", "home", "tmp"):
        (tmp_path / name).mkdir(exist_ok=True)
    (tmp_path / "brief").write_text("what is wanted\n")
    receive, send = os.pipe()
    lock = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
    fcntl.flock(lock, fcntl.LOCK_EX)
    configuration = {
        "argv": argv or [sys.executable, "-I", "-S", "-c", HEAD + program],
        "environment": {"PATH": os.environ["PATH"], "GIVEN": "1"},
        "folder": str(folder),
        "stdin": str(tmp_path / "brief"),
        "file_bytes": 1 << 20,
        "report": send,
        "lock": lock,
        "sandboxed": False,
        "runner": os.getpid(),
        "grace": 1.0,
        "settle": 60.0,
        "temporary_root": str(tmp_path / "tmp"),
        "home": str(tmp_path / "home"),
        "own": [str(tmp_path / name) for name in ("clone", "home", "tmp")],
        "sealed": [],
        "kept": [],
    } | more
    process = subprocess.Popen(
        [sys.executable, "-S", "-P", "-m", "runner.craft.keeper", json.dumps(configuration)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        pass_fds=(send, lock),
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(source_root())},
    )
    os.close(send)
    os.close(lock)
    try:
        yield Kept(process, folder, receive)
    finally:
        os.close(receive)
        with process:  # closes its standard input, which ends it and what it started
            pass


def is_gone(pid: int) -> None:
    """Wait until a process has ended."""
    limit = time.monotonic() + PATIENCE
    while True:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except OSError:
            return
        if state in "ZX":
            return
        assert time.monotonic() < limit, f"process {pid} still runs"
        time.sleep(0.02)


def test_the_command_gets_its_brief_its_place_and_no_more(tmp_path: Path) -> None:
    program = """
print(sys.stdin.read().strip(), os.getcwd(), os.environ["GIVEN"], "HOME" in os.environ)
print(os.getsid(0) == os.getpid(), resource.getrlimit(resource.RLIMIT_CORE), resource.getrlimit(resource.RLIMIT_FSIZE))
print(sorted(int(name) for name in os.listdir("/proc/self/fd") if int(name) > 2)[1:])
sys.exit(7)
"""
    with kept(tmp_path, program) as keeper:
        told = keeper.told()
    assert (told["exit_code"], told["left"], told["wrote"], told["reached"]) == (7, [], [], [])
    place, limits, descriptors = told["words"].splitlines()
    assert place == f"what is wanted {tmp_path / 'clone'} 1 False"
    assert limits == f"True (0, 0) ({1 << 20}, {1 << 20})"
    assert descriptors == "[]", "neither the report nor the lock is the command's; what lists them has one open"


def test_a_file_ends_at_the_limit(tmp_path: Path) -> None:
    program = """
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
try:
    pathlib.Path("big").write_bytes(bytes(2 << 20))
except OSError as error:
    print(error.errno, pathlib.Path("big").stat().st_size)
"""
    with kept(tmp_path, program) as keeper:
        assert keeper.told()["words"] == f"27 {1 << 20}\n"


def test_what_stays_is_named_and_ended(tmp_path: Path) -> None:
    """However it got away from whoever started it."""
    daemon = ["setsid", "sh", "-c", "echo $$ > away; sleep 3600 & wait"]
    program = f"""
null = subprocess.DEVNULL
subprocess.Popen({daemon!r}, stdin=null, stdout=null, stderr=null, close_fds=False)
while not (pathlib.Path("away").exists() and pathlib.Path("away").read_text().endswith("\\n")):
    time.sleep(0.01)
"""
    with kept(tmp_path, program, settle=0.5) as keeper:
        told = keeper.told()
        pid = keeper.pid_in("away")
    assert told["exit_code"] == 0
    assert (len(told["left"]), all("sleep 3600" in line for line in told["left"])) == (2, True)
    is_gone(pid)


def test_what_ends_by_itself_soon_is_not_left(tmp_path: Path) -> None:
    program = "subprocess.Popen(['sh', '-c', 'read line; exit 0'], stdin=subprocess.PIPE, close_fds=False)"
    with kept(tmp_path, program) as keeper:
        told = keeper.told()
    assert (told["exit_code"], told["left"]) == (0, [])


@pytest.mark.parametrize("told_by", ["a line", "the end of its input", "a signal"])
def test_it_stops_when_it_is_told_to(tmp_path: Path, told_by: str) -> None:
    """A command that does not heed it is ended by force."""
    with kept(tmp_path, "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + STAYS, grace=0.2) as keeper:
        pid = keeper.pid_in("begun")
        if told_by == "a line":
            keeper.say(b"stop\n")
        elif told_by == "a signal":
            keeper.process.send_signal(signal.SIGTERM)
        else:
            assert keeper.process.stdin is not None
            keeper.process.stdin.close()
            keeper.process.stdin = None
        told = keeper.told()
        assert (told["exit_code"], told["left"]) == (None, []), "what it had to end is no offence of the command"
        is_gone(pid)


def test_a_command_is_asked_first(tmp_path: Path) -> None:
    program = "signal.signal(signal.SIGTERM, lambda *_: sys.exit(print('asked')))\n" + STAYS
    with kept(tmp_path, program, grace=PATIENCE) as keeper:
        keeper.pid_in("begun")
        keeper.say(b"stop\n")
        assert keeper.told()["words"] == "asked\n"


def test_a_command_dies_with_it(tmp_path: Path) -> None:
    """Even where nobody is left who could end the command."""
    with kept(tmp_path, STAYS) as keeper:
        pid = keeper.pid_in("begun")
        keeper.process.kill()
        keeper.process.wait(PATIENCE)
        is_gone(pid)
        assert os.read(keeper.report, 1) == b"", "no report, and nobody holds its other end"


def test_nobody_below_it_may_look_into_it_or_into_the_runner(tmp_path: Path) -> None:
    program = """
for pid in (os.getppid(), RUNNER):
    for name in ("mem", "environ"):
        try:
            pathlib.Path(f"/proc/{pid}/{name}").open("rb").close()
        except OSError:
            pass
"""
    with kept(tmp_path, program.replace("RUNNER", str(os.getpid()))) as keeper:
        opened = keeper.told()["opened"]
        assert opened == [f"/proc/{pid}/mem" for pid in (keeper.process.pid, os.getpid())]


@pytest.mark.parametrize(
    "argv", [["/no/such/command"], [str(Path(__file__).parent)], [__file__]], ids=["missing", "folder", "no-program"]
)
def test_what_cannot_be_started_is_said(tmp_path: Path, argv: list[str]) -> None:
    with kept(tmp_path, argv=argv) as keeper:
        told = keeper.told()
    assert argv[0] in told["error"]
    assert "exit_code" not in told


def test_the_lock_is_its_own_until_it_ends(tmp_path: Path) -> None:
    """So an attempt that goes on waits for what an interrupted one left, and for nothing that is older."""
    with kept(tmp_path, STAYS) as keeper, (tmp_path / "lock").open() as lock:
        keeper.pid_in("begun")
        with pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        keeper.process.kill()
        keeper.process.wait(PATIENCE)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
