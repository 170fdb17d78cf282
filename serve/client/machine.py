"""The machine's state once a second while a window is open, read from /proc."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from runner.model.evidence import MachineState

_PROC = Path("/proc")
_PERIOD_SECONDS = 1.0
_KERNEL_THREAD = 0x00200000
"""PF_KTHREAD of Linux's ``include/linux/sched.h``, in the flags of a process's ``stat``."""
_SERVICES = frozenset(
    {"dockerd", "containerd", "containerd-shim", "podman", "conmon", "systemd-journal", "rsyslogd", "dbus-daemon"}
)
"""Commands (the first fifteen letters) that work for whoever asks: what an engine prints, docker's daemon passes on."""


def processor_facts() -> dict[str, int]:
    """What turns kernel ticks into fractions: processors and ticks per second."""
    return {"processors": os.cpu_count() or 1, "ticks_per_second": os.sysconf("SC_CLK_TCK")}


@dataclass(frozen=True)
class _Process:
    """One line of ``/proc/<pid>/stat``, times in ticks."""

    parent: int
    serving: bool
    """Of the kernel, or a service: what it does the engine may have asked for."""
    own: int
    waited: int
    """Time of the children that it has waited for, and of theirs."""

    @property
    def whole(self) -> int:
        return self.own + self.waited


_Key = tuple[int, int]
"""Process id and start: an id alone may be another process by the next reading."""


class Readings:
    """Readings whose ``own_ticks`` and ``foreign_ticks`` never fall: time once seen is not lost where its process ends.

    Processes of ours are ``roots`` with all descendants; who once was ours stays so wherever it is adopted. Foreign are
    the others that can be seen, without the kernel's own and services: what these do, the engine may have asked for.
    """

    def __init__(self, *roots: int) -> None:
        self._roots = roots
        self._ours: set[_Key] = set()
        self._before: dict[_Key, _Process] = {}
        self._own_ticks = 0
        self._foreign_ticks = 0

    def read(self) -> MachineState:
        """The state now."""
        user, nice, system, _idle, _iowait, irq, softirq, steal = _processor_ticks()
        processes = _processes()
        ours = _below({pid for pid, _start in self._ours & processes.keys()}.union(self._roots), processes)
        others = {key for key, process in processes.items() if key not in ours and not process.serving}
        known = {key for key, process in self._before.items() if not process.serving}
        self._own_ticks += _spent(self._before, processes, ours, self._ours - processes.keys())
        self._foreign_ticks += _spent(self._before, processes, others, known - self._ours - processes.keys())
        self._ours, self._before = ours, processes
        return MachineState(
            at_ns=time.monotonic_ns(),
            load1_milli=round(float((_PROC / "loadavg").read_text().split()[0]) * 1000),
            steal_ticks=steal,
            busy_ticks=user + nice + system + irq + softirq,
            own_ticks=self._own_ticks,
            foreign_ticks=self._foreign_ticks,
        )


def read_state(engine_pid: int) -> MachineState:
    """One reading that no other went before. Ours are this process and the engine's."""
    return Readings(os.getpid(), engine_pid).read()


def _processor_ticks() -> tuple[int, ...]:
    fields = (_PROC / "stat").read_text().split("\n", 1)[0].split()[1:9]
    return tuple(int(field) for field in fields)


def _processes() -> dict[_Key, _Process]:
    found = {}
    for folder in _PROC.iterdir():
        if not folder.name.isdigit():
            continue
        try:
            # The command name is in parentheses and may hold anything; the numbers start after the last one.
            name, _, rest = (folder / "stat").read_text().partition("(")[2].rpartition(")")
            fields = rest.split()
        except OSError:
            continue  # ended between listing and reading
        found[int(folder.name), int(fields[19])] = _Process(
            parent=int(fields[1]),
            serving=bool(int(fields[6]) & _KERNEL_THREAD) or name in _SERVICES,
            own=int(fields[11]) + int(fields[12]),
            waited=int(fields[13]) + int(fields[14]),
        )
    return found


def _below(roots: set[int], processes: Mapping[_Key, _Process]) -> set[_Key]:
    """The roots that live, with all their descendants."""
    children: dict[int, list[_Key]] = {}
    for key, process in processes.items():
        children.setdefault(process.parent, []).append(key)
    found: set[_Key] = set()
    waiting = [key for key in processes if key[0] in roots]
    while waiting:
        key = waiting.pop()
        if key not in found:
            found.add(key)
            waiting.extend(children.get(key[0], ()))
    return found


def _spent(before: Mapping[_Key, _Process], now: Mapping[_Key, _Process], present: set[_Key], ended: set[_Key]) -> int:
    """Time that the processes present took since the reading before, ended children that were waited for included.

    What an ended process had taken by that reading is counted already, and returns in the time of whoever waited for
    it; where nobody did, there is nothing to take back.
    """
    new = sum(now[key].whole for key in present if key not in before)
    old = [key for key in present if key in before]
    returned = sum(now[key].waited - before[key].waited for key in old)
    counted = sum(before[key].whole for key in ended)
    return new + sum(now[key].own - before[key].own for key in old) + max(returned - counted, 0)


class MachineWatch:
    """Reads the state at entry, once a second and at exit."""

    def __init__(self, engine_pid: int) -> None:
        self._readings = Readings(os.getpid(), engine_pid)
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.states: list[MachineState] = []

    def _watch(self) -> None:
        while not self._done.wait(_PERIOD_SECONDS):
            self.states.append(self._readings.read())

    def __enter__(self) -> MachineWatch:
        self.states.append(self._readings.read())
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()
        self.states.append(self._readings.read())
