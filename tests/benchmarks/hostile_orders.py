"""``runner check`` over files that are no orders, one process each: ``python -m tests.benchmarks.hostile_orders``.

A benchmark, not a test: it prints seconds of the processor and peak memory of each whole process, imports included.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from tests.runner.test_field_cases import HOSTILE


def checked(path: Path) -> tuple[int, float, int]:
    """Exit code, seconds of the processor and peak memory in KiB of one ``runner check``."""
    command = [sys.executable, "-m", "runner.cli", "check", str(path)]
    silent = [(os.POSIX_SPAWN_OPEN, stream, os.devnull, os.O_WRONLY, 0) for stream in (1, 2)]
    process = os.posix_spawn(sys.executable, command, os.environ, file_actions=silent)
    _, status, used = os.wait4(process, 0)
    return os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime, used.ru_maxrss


def main() -> None:
    """A line for each file, and one for a file of 100 MB."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "order.yaml"
        for name, (data, _) in HOSTILE.items():
            path.write_bytes(data)
            print_line(name, path)
        with path.open("wb") as stream:
            stream.truncate(100 << 20)
        print_line("100 MB", path)


def print_line(name: str, path: Path) -> None:
    """What ``path`` cost."""
    code, seconds, peak = checked(path)
    print(f"{name:20} exit {code}  {seconds:5.2f} s  {peak // 1024:4d} MiB")


if __name__ == "__main__":
    main()
