"""What a command asks of the kernel, as the keeper notes it; a real command under a real filter."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from runner.craft.calls import NOTED, Calls


def noted(tmp_path: Path, program: str) -> tuple[list[str], list[str]]:
    """Paths written outside ``own`` and opened below ``sealed``, relative to the test's folder."""
    calls = Calls([str(tmp_path / "own"), str(tmp_path / "sealed" / "clone")], [str(tmp_path / "sealed")])
    for name in ("own", "sealed/clone", "else"):
        (tmp_path / name).mkdir(parents=True, exist_ok=True)
    (tmp_path / "sealed" / "seed").write_text("0")
    command = [sys.executable, "-I", "-S", "-c", f"import os, pathlib\n{program}"]
    with subprocess.Popen(command, cwd=tmp_path / "own", close_fds=False, preexec_fn=calls.begin) as process:  # noqa: PLW1509
        calls.follow()
    assert (process.returncode, calls.unseen) == (0, "")
    report = calls.report()
    wrote, opened = ([path.removeprefix(f"{tmp_path}/") for path in report[kind]] for kind in ("wrote", "opened"))
    return wrote, opened


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
        ("open('/dev/null', 'w'); open('/proc/self/comm', 'w')", [], []),
        ("open('/dev/shm/carve-test', 'w').close(); os.remove('/dev/shm/carve-test')", [], []),
    ],
)
def test_where_a_call_leads_is_what_is_noted(tmp_path: Path, program: str, wrote: list[str], opened: list[str]) -> None:
    assert noted(tmp_path, program) == (wrote, opened)


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
import ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
numbers = {"x86_64": 304, "aarch64": 265}
for number in (425, numbers[os.uname().machine]):
    assert libc.syscall(number, 0, 0, 0) == -1 and ctypes.get_errno() == errno.ENOSYS
"""
    assert noted(tmp_path, program) == ([], [])


def test_where_nothing_can_be_seen_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "abacus")
    calls = Calls([], [])
    calls.begin()  # in this process: nothing is set where nothing is known
    calls.follow()
    assert calls.report() == {"wrote": [], "opened": [], "unseen": "not known for abacus"}
