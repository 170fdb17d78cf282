"""Progress for a person: one line that moves, and notes that stay, on standard error.

Where standard error is no terminal nothing can move: there what begins is a line of its own, not too often.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from runner.steps.state import Progress as Watcher
from runner.steps.state import Silent
from runner.visible import visible

QUIET_SECONDS = 10.0
"""Least time between two lines about what begins, where there is no terminal."""


class Shown:
    """Planned seconds against what has begun."""

    def __init__(self, bar: Progress, task: TaskID) -> None:
        self._bar, self._task, self._running = bar, task, 0

    def expect(self, seconds: int) -> None:
        """The whole will take about this long."""
        self._bar.update(self._task, total=seconds)

    def begin(self, what: str, seconds: int) -> None:
        """What ran before is done; this starts."""
        self._bar.update(self._task, advance=self._running, description=visible(what))
        self._running = seconds

    def note(self, what: str) -> None:
        """A line that stays."""
        self._bar.console.print(visible(what, keep="\n"), highlight=False, markup=False, soft_wrap=True)


class Written:
    """Lines only; of what begins one in :data:`QUIET_SECONDS`."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._console, self._clock, self._last = console, clock, float("-inf")

    def expect(self, seconds: int) -> None:
        """The whole will take about this long."""
        self.note(f"about {seconds} s planned")

    def begin(self, what: str, seconds: int) -> None:
        """A line, unless one was written just now."""
        now = self._clock()
        if now - self._last >= QUIET_SECONDS:
            self._last = now
            self.note(f"{what}, about {seconds} s")

    def note(self, what: str) -> None:
        """A line that stays."""
        self._console.print(visible(what, keep="\n"), highlight=False, markup=False, soft_wrap=True)


@contextmanager
def watching(*, quiet: bool) -> Iterator[Watcher]:
    """A progress display, or nothing."""
    if quiet:
        yield Silent()
        return
    console = Console(stderr=True)
    if not console.is_terminal:
        yield Written(console)
        return
    columns = (TextColumn("{task.description:<32}", markup=False), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        yield Shown(bar, bar.add_task("starting", total=None))
