"""Progress for a person: one line that moves, and notes that stay, on standard error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from runner.steps.state import Progress as Watcher
from runner.steps.state import Silent
from runner.visible import visible


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


@contextmanager
def watching(*, quiet: bool) -> Iterator[Watcher]:
    """A progress display, or nothing."""
    if quiet:
        yield Silent()
        return
    columns = (TextColumn("{task.description:<32}", markup=False), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        yield Shown(bar, bar.add_task("starting", total=None))
