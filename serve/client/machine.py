"""The machine's state once a second while a window is open, read from /proc."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from types import TracebackType

from runner.model.evidence import MachineState

_PROC = Path("/proc")
_PERIOD_SECONDS = 1.0


def processor_facts() -> dict[str, int]:
    """What turns kernel ticks into fractions: processors and ticks per second."""
    return {"processors": os.cpu_count() or 1, "ticks_per_second": os.sysconf("SC_CLK_TCK")}


def read_state(engine_pid: int) -> MachineState:
    """One reading. Processes of ours are this one and the engine's, each with all descendants."""
    user, nice, system, _idle, _iowait, irq, softirq, steal = _processor_ticks()
    return MachineState(
        at_ns=time.monotonic_ns(),
        load1_milli=round(float((_PROC / "loadavg").read_text().split()[0]) * 1000),
        steal_ticks=steal,
        busy_ticks=user + nice + system + irq + softirq,
        own_ticks=_own_ticks((os.getpid(), engine_pid)),
    )


def _processor_ticks() -> tuple[int, ...]:
    fields = (_PROC / "stat").read_text().split("\n", 1)[0].split()[1:9]
    return tuple(int(field) for field in fields)


def _own_ticks(roots: tuple[int, ...]) -> int:
    """Processor time of the roots and their living descendants, with that of children they have waited for."""
    ticks: dict[int, int] = {}
    children: dict[int, list[int]] = {}
    for folder in _PROC.iterdir():
        if not folder.name.isdigit():
            continue
        try:
            # The command name is in parentheses and may hold anything; the numbers start after the last one.
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # ended between listing and reading
        pid = int(folder.name)
        ticks[pid] = sum(int(field) for field in fields[11:15])
        children.setdefault(int(fields[1]), []).append(pid)
    seen: set[int] = set()
    waiting = [pid for pid in roots if pid in ticks]
    while waiting:
        pid = waiting.pop()
        if pid not in seen:
            seen.add(pid)
            waiting.extend(children.get(pid, ()))
    return sum(ticks[pid] for pid in seen)


class MachineWatch:
    """Reads the state at entry, once a second and at exit."""

    def __init__(self, engine_pid: int) -> None:
        self._pid = engine_pid
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.states: list[MachineState] = []

    def _watch(self) -> None:
        while not self._done.wait(_PERIOD_SECONDS):
            self.states.append(read_state(self._pid))

    def __enter__(self) -> MachineWatch:
        self.states.append(read_state(self._pid))
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()
        self.states.append(read_state(self._pid))
