"""FL-48: a pattern that ends processes by name also ends the shell that bears it in its own words."""

from __future__ import annotations

import re

from runner.paths import source_root

ROOMS = (".ci", "kernels", "recipe", "runner", "scripts", "serve", "tests")
BY_NAME = re.compile(rb"\b(?:" + b"|".join((b"p" + b"kill", b"kill" + b"all", b"pg" + b"rep")) + rb")\b")


def test_FL_48_nothing_here_ends_or_finds_processes_by_name() -> None:
    files = [
        path
        for room in ROOMS
        for path in (source_root() / room).rglob("*")
        if path.is_file() and path.suffix in {"", ".py", ".sh", ".cpp", ".cu", ".j2"}
    ]
    assert len(files) > 300
    assert [str(path) for path in files if BY_NAME.search(path.read_bytes())] == []
