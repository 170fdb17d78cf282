"""What a command asks of the kernel, as the keeper notes it; a real command under a real filter."""

from __future__ import annotations

import os
import platform
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from runner.craft.call_table import ABSENT, CALLS, FORBIDDEN, NUMBERS, PRETENDED, REFUSED
from runner.craft.calls import NOTED, Calls
from runner.craft.others import EVERYBODY

BEGIN = """
import ctypes, os, pathlib, resource, signal, socket, subprocess
libc = ctypes.CDLL(None, use_errno=True)
prctl = libc.prctl
PARENT = os.getppid()

def by_number(intel, arm, *arguments):
    number = intel if os.uname().machine == "x86_64" else arm
    return libc.syscall(number, *arguments) == -1 and ctypes.get_errno()

def tried(function, *arguments):
    try:
        function(*arguments)
    except OSError as error:
        return error.errno
"""
"""What every program may use."""


def asked(tmp_path: Path, program: str) -> dict[str, list[str]]:
    """What the keeper would report of a program; paths are relative to the test's folder."""
    calls = Calls([str(tmp_path / "own"), str(tmp_path / "sealed" / "clone")], [str(tmp_path / "sealed")])
    for name in ("own", "sealed/clone", "else"):
        (tmp_path / name).mkdir(parents=True, exist_ok=True)
    (tmp_path / "sealed" / "seed").write_text("0")
    command = [sys.executable, "-I", "-S", "-c", BEGIN + program]
    done = calls.start(lambda: subprocess.run(command, cwd=tmp_path / "own", check=False, close_fds=False))
    calls.close()
    assert (done.returncode, calls.unseen) == (0, "")
    report = calls.report()
    kinds = ("wrote", "opened", "reached")
    return {kind: [path.removeprefix(f"{tmp_path}/") for path in report[kind]] for kind in kinds}


def noted(tmp_path: Path, program: str) -> tuple[list[str], list[str]]:
    """Paths written outside ``own``, and opened below ``sealed``; nobody else was reached."""
    report = asked(tmp_path, program)
    assert report["reached"] == []
    return report["wrote"], report["opened"]


def test_what_lies_in_its_own_folders_is_its_own(tmp_path: Path) -> None:
    program = "pathlib.Path('a').write_text('x'); os.rename('a', 'b'); os.mkdir('../sealed/clone/c'); os.listdir('..')"
    assert noted(tmp_path, program) == ([], [])


@pytest.mark.parametrize(
    ("program", "wrote", "opened"),
    [
        ("open('../else/a', 'w')", ["else/a"], []),
        ("open('../else/a', 'a+')", ["else/a"], []),
        ("os.symlink('../else', 'l'); open('l/a', 'w')", ["else/a"], []),
        ("os.symlink('../else/new', 'l'); open('l', 'w')", ["else/new"], []),
        ("os.chdir('../else'); os.mkdir('d')", ["else/d"], []),
        ("open('a', 'w').close(); os.rename('a', '../else/a')", ["else/a"], []),
        ("open('../sealed/seed').read()", [], ["sealed/seed"]),
        ("os.listdir('../sealed'); [list(one) for one in os.walk('..')]", [], []),  # who walks by reads nothing
        ("os.system('mkdir -p ' + str(pathlib.Path('../else/x').resolve()))", ["else/x"], []),
        ("os.system('mkdir / 2> /dev/null')", [], []),
        ("os.link('../sealed/seed', 's'); open('s').read()", ["sealed/seed"], []),  # its other name is one's own
        ("open('../sealed/seed', 'r+')", ["sealed/seed"], ["sealed/seed"]),
        ("os.chown('../else', -1, -1)", ["else"], []),
        ("os.lchown('../else', -1, -1)", ["else"], []),
        ("os.utime('../else')", ["else"], []),
        ("os.utime('.', dir_fd=os.open('../else', os.O_RDONLY))", ["else"], []),
        ("os.utime(os.open('../else', os.O_RDONLY))", ["else"], []),
        ("os.fchmod(os.open('../else', os.O_RDONLY), 0o755)", ["else"], []),
        ("os.fchown(os.open('../else', os.O_RDONLY), -1, -1)", ["else"], []),
        ("tried(os.setxattr, '../else', 'user.a', b'1')", ["else"], []),
        ("tried(os.removexattr, os.open('../else', os.O_RDONLY), 'user.a')", ["else"], []),
        ("import fcntl; tried(fcntl.ioctl, os.open('../else', os.O_RDONLY), 0x40086602, bytes(8))", ["else"], []),
        ("tried(os.mknod, 'disk', 0o060600, os.makedev(7, 250))", ["own/disk"], []),
        ("open('/proc/sys/kernel/domainname', 'a')", ["/proc/sys/kernel/domainname"], []),
        ("socket.socket(socket.AF_UNIX).bind('../else/s')", ["else/s"], []),
        ("prctl(4, 0); open('../else/a', 'w')", ["else/a"], []),
        ("prctl(4, 0); open('a', 'w').close(); os.chown('a', -1, -1); os.utime('a')", [], []),
        ("open('/dev/null', 'w'); open('/proc/self/comm', 'w')", [], []),
        ("os.dup2(os.pipe()[1], 1); os.system('echo > /dev/stdout; echo > /dev/fd/1')", [], []),
        ("tried(os.open, '/dev/nvidia99', os.O_RDWR)", [], []),
        ("import pty; pid, end = pty.fork(); pid or os._exit(0); os.waitpid(pid, 0)", [], []),
        ("one, two = os.openpty(); os.fchmod(two, 0o600); os.close(os.open(os.ttyname(two), os.O_RDWR))", [], []),
        ("open('/dev/full', 'w'); open('/dev/zero', 'r+b', 0); tried(open, '/dev/tty', 'w')", [], []),
        ("tried(open, '/dev/null_payload/x', 'w')", ["/dev/null_payload/x"], []),
        ("tried(open, '/dev/zero.d/x', 'w'); tried(os.rmdir, '/dev/dri.old')", ["/dev/zero.d/x", "/dev/dri.old"], []),
        ("tried(os.open, '/dev/nvidia-none/x', os.O_RDWR | os.O_CREAT)", ["/dev/nvidia-none/x"], []),
        ("tried(os.rmdir, '/dev/null')", ["/dev/null"], []),
        ("tried(os.rename, '/dev/zero', '/dev/zero/x')", ["/dev/zero", "/dev/zero/x"], []),
        ("open('/dev/shm/carve-test', 'w').close(); os.remove('/dev/shm/carve-test')", [], []),
    ],
)
def test_where_a_call_leads_is_what_is_noted(tmp_path: Path, program: str, wrote: list[str], opened: list[str]) -> None:
    assert noted(tmp_path, program) == (wrote, opened)


@pytest.mark.parametrize(
    "program",
    [
        "assert tried(os.kill, PARENT, signal.SIGCONT) == 1",
        "assert tried(os.pidfd_open, PARENT) == 1",
        "place = os.open(f'/proc/{PARENT}', 0); assert tried(signal.pidfd_send_signal, place, signal.SIGCONT) == 1",
        "import fcntl; assert tried(fcntl.fcntl, socket.socket(), fcntl.F_SETOWN, PARENT) == 1",
        "assert by_number(312, 272, os.getpid(), PARENT, 0, 0, 0) == 1",  # kcmp
        "assert by_number(312, 272, PARENT, os.getpid(), 0, 0, 0) == 1",
        "assert by_number(298, 241, bytes(128), PARENT, -1, -1, 0) == 1",  # perf_event_open
        "assert tried(resource.prlimit, PARENT, resource.RLIMIT_CORE) == 1",
        "assert libc.ptrace(0x4206, PARENT, 0, 0) == -1 and ctypes.get_errno() == 1",
        "assert libc.ptrace(16, PARENT, 0, 0) == -1 and ctypes.get_errno() == 1",
        "assert libc.process_vm_writev(PARENT, 0, 0, 0, 0, 0) == -1 and ctypes.get_errno() == 1",
        "assert libc.process_vm_readv(PARENT, 0, 0, 0, 0, 0) == -1 and ctypes.get_errno() == 1",
        "assert tried(os.setpriority, os.PRIO_PROCESS, PARENT, 19) == 1",
        "assert tried(os.sched_setaffinity, PARENT, os.sched_getaffinity(0)) == 1",
        "assert tried(os.sched_setscheduler, PARENT, os.SCHED_IDLE, os.sched_param(0)) == 1",
        "assert tried(os.sched_setparam, PARENT, os.sched_param(0)) == 1",
        "assert by_number(314, 274, PARENT, 0, 0) == 1",  # sched_setattr
        "assert by_number(251, 30, 1, PARENT, 3 << 13) == 1",  # ioprio_set
        "assert by_number(256, 238, PARENT, 0, 0, 0) == 1",  # migrate_pages
        "assert by_number(279, 239, PARENT, 0, 0, 0, 0, 0) == 1",  # move_pages
        "libc.prctl(4, 0); assert tried(os.kill, PARENT, signal.SIGCONT) == 1",
    ],
)
def test_a_process_that_is_not_its_own_is_named_and_out_of_reach(tmp_path: Path, program: str) -> None:
    (one,) = asked(tmp_path, program)["reached"]
    assert one.startswith(f"process {os.getpid()} (")


def test_groups_and_everybody_at_once_are_out_of_reach_too(tmp_path: Path) -> None:
    (one,) = asked(tmp_path, "assert tried(os.killpg, os.getpgid(PARENT), signal.SIGCONT) == 1")["reached"]
    assert one.startswith("process ")
    (one,) = asked(tmp_path, "assert tried(os.setpriority, os.PRIO_PGRP, os.getpgid(PARENT), 19) == 1")["reached"]
    assert one.startswith("process ")
    user = "assert tried(os.setpriority, os.PRIO_USER, 0, 19) == 1"
    assert asked(tmp_path, user)["reached"] == [EVERYBODY]
    assert asked(tmp_path, "assert tried(os.kill, -1, signal.SIGCONT) == 1")["reached"] == [EVERYBODY]
    (one,) = asked(tmp_path, "import fcntl; assert tried(fcntl.fcntl, 0, 8, -os.getpgid(PARENT)) == 1")["reached"]
    assert one.startswith("process ")
    everywhere = "assert by_number(298, 241, bytes(128), -1, 0, -1, 0) == 1"  # perf_event_open
    assert asked(tmp_path, everywhere)["reached"] == [EVERYBODY]


def test_a_service_of_the_machine_is_named(tmp_path: Path) -> None:
    (tmp_path / "else").mkdir()
    name = f"carve-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as file, socket.socket(socket.AF_UNIX) as abstract:
        file.bind(str(tmp_path / "else" / "s"))
        abstract.bind(f"\0{name}")
        for one in (file, abstract):
            one.listen()
        program = f"""
socket.socket(socket.AF_UNIX).connect("../else/s")
socket.socket(socket.AF_UNIX).connect("\\0{name}")
tried(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto, b"1", "../else/s")
"""
        assert asked(tmp_path, program)["reached"] == ["else/s", f"@{name}"]


HONEST = """
os.kill(PARENT, 0)
import pwd, time
pwd.getpwuid(0)
tried(socket.getaddrinfo, "localhost", 80)
tried(socket.socket(socket.AF_UNIX).connect, "/tmp/.X11-unix/X99")
tried(socket.socket(socket.AF_UNIX).connect, "\\0/tmp/.X11-unix/X99")
tried(socket.socket(socket.AF_INET).connect, ("127.0.0.1", 9))
for name in ("s", "\\0carve-own-" + str(os.getpid())):
    with socket.socket(socket.AF_UNIX) as one, socket.socket(socket.AF_UNIX) as two:
        one.bind(name)
        one.listen()
        two.connect(name)
        two.sendmsg([b"1"])
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
    one.bind(("127.0.0.1", 0))
    one.sendto(b"1", one.getsockname())
pathlib.Path("a").touch()
tried(os.setxattr, "a", "user.a", b"1")
os.chown("a", -1, -1)
os.utime("a")
with open("a") as one:
    os.fchmod(one.fileno(), 0o600)
    os.utime(one.fileno())
os.mkfifo("pipe")
child = subprocess.Popen(["sleep", "600"], start_new_session=True, close_fds=False)
resource.prlimit(child.pid, resource.RLIMIT_CORE, (0, 0))
assert libc.ptrace(0x4206, child.pid, 0, 0) == 0
for number in (0, os.getpid(), child.pid):
    os.setpriority(os.PRIO_PROCESS, number, 19)
    os.sched_setaffinity(number, os.sched_getaffinity(0))
    os.sched_setscheduler(number, os.SCHED_BATCH, os.sched_param(0))
    assert not by_number(251, 30, 1, number, 3 << 13)
os.setpriority(os.PRIO_PGRP, child.pid, 19)
import asyncio, fcntl, threading
async def wait():
    return await (await asyncio.create_subprocess_exec("true")).wait()
assert asyncio.run(wait()) == 0
handle = os.pidfd_open(os.getpid())
by_number(438, 438, handle, 0, 0)
threading.Thread(target=int).start()
assert libc.unshare(0x600) == 0
with socket.socket() as one:
    for number in (os.getpid(), -child.pid, 0):
        fcntl.fcntl(one, fcntl.F_SETOWN, number)
    fcntl.fcntl(one, fcntl.F_SETFL, fcntl.fcntl(one, fcntl.F_GETFL) | os.O_NONBLOCK)
by_number(312, 272, os.getpid(), os.getpid(), 0, 0, 0)
by_number(298, 241, bytes(128), 0, -1, -1, 0)
os.kill(child.pid, signal.SIGCONT)
os.kill(child.pid, signal.SIGKILL)
child.wait()
os.kill(os.getpid(), signal.SIGCONT)
signal.raise_signal(signal.SIGCONT)
second = subprocess.Popen("sleep 600 & wait", shell=True, start_new_session=True, close_fds=False)
os.killpg(second.pid, signal.SIGTERM)
second.wait()
memory = os.memfd_create("m")
os.write(memory, b"1")
os.fchmod(memory, 0o700)
"""
"""What programs do every day with their own files, sockets and children."""


def test_what_programs_do_with_what_is_theirs_is_nobodys_business(tmp_path: Path) -> None:
    assert asked(tmp_path, HONEST) == {"wrote": [], "opened": [], "reached": []}


def test_a_program_without_a_file_is_watched_as_any_other(tmp_path: Path) -> None:
    program = """
memory = os.memfd_create("m")
os.write(memory, pathlib.Path("/bin/sh").resolve().read_bytes())
os.execve(memory, ["sh", "-c", "echo > ../else/a"], {})
"""
    assert noted(tmp_path, program) == (["else/a"], [])


def test_a_terminal_of_others_is_none_of_its_own(tmp_path: Path) -> None:
    """Neither to write to, nor to type into or to take, which ask for no more than reading."""
    ours, theirs = os.openpty()
    name = os.ttyname(theirs)
    program = f"import fcntl; end = os.open({name!r}, os.O_RDONLY | os.O_NOCTTY)\n"
    try:
        assert noted(tmp_path, program) == ([], [])
        assert noted(tmp_path, program + "tried(fcntl.ioctl, end, 0x5412, b' ')") == ([name], [])
        assert noted(tmp_path, f"os.open({name!r}, os.O_WRONLY | os.O_NOCTTY)") == ([name], [])
    finally:
        os.close(ours)
        os.close(theirs)


def test_paths_cannot_be_moved_under_the_keeper(tmp_path: Path) -> None:
    """Not even where a process has a name space of its own."""
    program = """
os.mkdir("m")
for space in (0, 0x00020000):
    tried(libc.unshare, space)
    assert libc.mount(b"../else", b"m", None, 4096, None) == -1 and ctypes.get_errno() == 1
    assert libc.chroot(b"m") == -1 and ctypes.get_errno() == 1
"""
    assert noted(tmp_path, program) == ([], [])


def test_nothing_gets_into_a_name_space_where_numbers_mean_others(tmp_path: Path) -> None:
    """Neither by itself nor by a child, whose old way and new way to begin are both closed; plain children begin."""
    program = """
import errno
for space in (0x80, 1 << 17, *(1 << bit for bit in range(25, 31))):
    assert libc.unshare(space) == -1 and ctypes.get_errno() == errno.EPERM
    if space != 0x80:
        assert by_number(56, 220, space | signal.SIGCHLD, 0, 0, 0, 0) == errno.EPERM
assert by_number(435, 435, bytes(88), 88) == errno.ENOSYS
assert by_number(308, 268, os.open("/proc/self/ns/pid", 0), 0) == errno.EPERM
assert subprocess.run(["sh", "-c", "true & wait"], close_fds=False).returncode == 0
"""
    assert asked(tmp_path, program)["reached"] == []


def test_whom_a_call_means_cannot_be_exchanged_after_the_look(tmp_path: Path) -> None:
    """A process named in memory, or by a descriptor of any kind: refused for one's own as well, and nobody is named."""
    program = """
import errno, fcntl, struct
with socket.socket() as one:
    for request in (0x8901, 0x8902):
        assert tried(fcntl.ioctl, one, request, struct.pack("i", os.getpid())) == errno.EPERM
    assert tried(fcntl.fcntl, one, 15, struct.pack("ii", 1, os.getpid())) == errno.EPERM
assert tried(signal.pidfd_send_signal, os.pidfd_open(os.getpid()), signal.SIGCONT) == errno.ENOSYS
assert prctl(62, 1, PARENT, 0, 0) == -1 and ctypes.get_errno() == errno.EPERM
for intel, arm in ((321, 280), (323, 282), (300, 262)):
    assert by_number(intel, arm, 0, 0, 0) == errno.EPERM
"""
    assert asked(tmp_path, program)["reached"] == []


def test_what_is_left_in_shared_memory_is_noted(tmp_path: Path) -> None:
    path = Path(f"/dev/shm/carve-test-{os.getpid()}")
    try:
        assert noted(tmp_path, f"open('{path}', 'w')") == ([str(path)], [])
    finally:
        path.unlink()


def test_a_flood_of_calls_is_noted_up_to_a_bound(tmp_path: Path) -> None:
    wrote, _ = noted(tmp_path, "[open(f'../else/{n}', 'w').close() for n in range(500)]")
    assert len(wrote) == NOTED


def test_ways_around_the_filter_are_closed(tmp_path: Path) -> None:
    program = """
import errno
for intel, arm in ((425, 425), (304, 265), (248, 217), (249, 218), (250, 219)):
    assert by_number(intel, arm, 0, 0, 0, 0, 0) == errno.ENOSYS
for call in (libc.sethostname, libc.setdomainname):
    assert call(b"other", 5) == -1 and ctypes.get_errno() == errno.EPERM
"""
    assert noted(tmp_path, program) == ([], [])


def test_every_call_of_the_table_has_a_number_of_its_own() -> None:
    for _, numbers in NUMBERS.values():
        assert len(set(numbers.values())) == len(numbers)
        assert {*ABSENT, *FORBIDDEN, *PRETENDED, *REFUSED} <= numbers.keys()
    assert NUMBERS["x86_64"][1].keys() >= CALLS.keys()
    old = CALLS.keys() - NUMBERS["aarch64"][1].keys()
    assert old == {
        *(
            "open",
            "creat",
            "rename",
            "link",
            "symlink",
            "mkdir",
            "mknod",
            "unlink",
            "rmdir",
            "chmod",
            "chown",
            "lchown",
        ),
        *("chown", "lchown", "utime", "utimes", "futimesat"),
    }


def test_where_nothing_can_be_seen_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "abacus")
    calls = Calls([], [])
    assert calls.start(lambda: 1) == 1
    calls.close()
    assert calls.report()["unseen"] == "not known for abacus"
