"""What a person sees of a run where standard error is no terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from runner.commands.progress import QUIET_SECONDS, Written, watching


def test_without_a_terminal_what_begins_is_a_line_but_not_too_often() -> None:
    text, times = io.StringIO(), iter((0.0, QUIET_SECONDS - 1, QUIET_SECONDS))
    progress = Written(Console(file=text, width=20), clock=lambda: next(times))
    for number in range(3):
        progress.begin(f"window {number} of a long name that is not broken", 4)
    progress.note("run r1 in /a/b")
    assert text.getvalue().splitlines() == [
        "window 0 of a long name that is not broken, about 4 s",
        "window 2 of a long name that is not broken, about 4 s",
        "run r1 in /a/b",
    ]


def test_a_pipe_is_written_to(capsys: pytest.CaptureFixture[str]) -> None:
    with watching(quiet=False) as progress:
        progress.begin("boot shared-1", 20)
    assert "boot shared-1" in capsys.readouterr().err
