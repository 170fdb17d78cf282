"""Whose processor time it was, with real processes: ours, others' that can be seen, or nobody's that can be named."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest

from runner.model.evidence import Evidence, MachineState
from serve.client import machine
from serve.client.foreign import disturbed_by_others
from serve.client.machine import MachineWatch, Readings, processor_facts
from serve.instruments.machine import disturbed

BURNT = 60
"""Ticks that a program burns, by its own count; the tests ask for half, as rounding and starting take some."""
PRELUDE = f"""
import os, signal, sys, time

def burn():
    end = time.process_time() + {BURNT} / os.sysconf("SC_CLK_TCK")
    while time.process_time() < end:
        pass

def child(act):
    pid = os.fork()
    if pid == 0:
        act()
        os._exit(0)
    return pid

def say(word):
    print(word, flush=True)
    sys.stdin.readline()

def all_ended():
    try:
        os.wait()  # where the signal is ignored: returns when the last child has ended, and nobody has its time
    except ChildProcessError:
        pass

say("ready")
"""
ALONE = "burn(); say('done')"
BY_A_CHILD = "os.waitpid(child(burn), 0); say('done')"
BY_A_CHILD_OF_NOBODY = "signal.signal(signal.SIGCHLD, signal.SIG_IGN); child(burn); all_ended(); say('done')"
SEEN_AND_GONE = """
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
(told, tell), (asked, ask) = os.pipe(), os.pipe()
def act():
    os.close(ask)
    burn()
    os.write(tell, b"1")
    os.read(asked, 1)
child(act)
os.read(told, 1)
say("burnt")
os.write(ask, b"1")
all_ended()
say("done")
"""
ADOPTED = """
(told, tell), (asked, ask) = os.pipe(), os.pipe()
def deep():
    os.setsid()
    os.write(tell, b"1")
    os.read(asked, 1)
    burn()
    os.write(tell, b"1")
    os.read(asked, 1)
def middle():
    os.close(ask)
    child(deep)
    signal.pause()
between = child(middle)
os.read(told, 1)
say("deep")
os.kill(between, signal.SIGKILL)
os.waitpid(between, 0)
os.write(ask, b"1")
os.read(told, 1)
say("done")
"""


@pytest.fixture(autouse=True)
def only_below_this_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever else runs on the machine is left out, so that the figures are those of the programs alone."""
    every, known = machine._processes, {os.getpid()}

    def ours() -> Mapping[tuple[int, int], machine._Process]:
        found = every()
        before = 0
        while len(known) > before:
            before = len(known)
            known.update(pid for (pid, _), process in found.items() if process.parent in known)
        return {key: process for key, process in found.items() if key[0] in known - {os.getpid()}}

    monkeypatch.setattr(machine, "_processes", ours)


@contextmanager
def program(source: str) -> Iterator[subprocess.Popen[str]]:
    """A process that has said ``ready``; a line lets it go on."""
    with subprocess.Popen(
        [sys.executable, "-c", PRELUDE + source], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            expect(process, "ready")
            yield process
        finally:
            process.kill()


def expect(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == f"{word}\n"


def go_on(process: subprocess.Popen[str], word: str) -> None:
    """Let it go on, and wait until it has said ``word``."""
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()
    expect(process, word)


def evidence(*states: MachineState) -> Evidence:
    """A window between these readings; its limit is half of what a program burns."""
    facts = processor_facts()
    wall = (states[-1].at_ns - states[0].at_ns) / 1e9
    limit = BURNT / 2 / (wall * facts["processors"] * facts["ticks_per_second"])
    return Evidence(
        window="q1-b1",
        boot="shared-a-00000001",
        instrument="speed@1",
        variant="incumbent",
        opened_at="2026-11-30T00:00:00Z",
        opened_ns=states[0].at_ns,
        closed_ns=states[-1].at_ns,
        machine=states,
        facts={"limits": {"steal_fraction": "100", "foreign_fraction": f"{limit:.9f}"}, **facts},
    )


def taken(first: MachineState, last: MachineState) -> tuple[int, int, int]:
    """Ticks that were busy, our own and foreign."""
    assert first.foreign_ticks is not None
    assert last.foreign_ticks is not None
    return (
        last.busy_ticks - first.busy_ticks,
        last.own_ticks - first.own_ticks,
        last.foreign_ticks - first.foreign_ticks,
    )


def test_work_of_children_that_nobody_waits_for_is_unexplained() -> None:
    with program(BY_A_CHILD_OF_NOBODY) as engine, program(ALONE) as neighbour:
        readings = Readings(engine.pid)
        first = readings.read()
        go_on(engine, "done")
        last = readings.read()
        assert neighbour.poll() is None
    busy, own, foreign = taken(first, last)
    assert own + foreign < BURNT / 2 < busy
    assert disturbed(evidence(first, last))
    assert not disturbed_by_others(evidence(first, last))


@pytest.mark.parametrize("work", [ALONE, BY_A_CHILD])
def test_a_neighbour_that_can_be_seen_is_foreign(work: str) -> None:
    with program(ALONE) as engine, program(work) as neighbour:
        readings = Readings(engine.pid)
        first = readings.read()
        go_on(neighbour, "done")
        last = readings.read()
    _busy, own, foreign = taken(first, last)
    assert own < BURNT / 2 < foreign
    assert disturbed_by_others(evidence(first, last))


def test_a_service_works_for_whoever_asks_and_explains_nothing() -> None:
    """An engine that prints without end keeps docker's daemon busy: no second draw for that."""
    named = "import ctypes; ctypes.CDLL(None).prctl(15, b'dockerd', 0, 0, 0); burn(); say('done')"
    with program(ALONE) as engine, program(named) as service:
        readings = Readings(engine.pid)
        first = readings.read()
        go_on(service, "done")
        last = readings.read()
    busy, own, foreign = taken(first, last)
    assert own + foreign < BURNT / 2 < busy
    assert not disturbed_by_others(evidence(first, last))


def test_what_cannot_be_read_is_explained_by_nobody() -> None:
    state = MachineState(at_ns=1, load1_milli=0, steal_ticks=0, busy_ticks=0, own_ticks=0, foreign_ticks=0)
    later = state.model_copy(update={"at_ns": 10**9, "foreign_ticks": 10**6})
    whole = evidence(state, later)
    assert disturbed_by_others(whole)
    for machine_states in ((), (later,), (later, later), (state.model_copy(update={"foreign_ticks": None}), later)):
        assert not disturbed_by_others(whole.model_copy(update={"machine": machine_states}))


@pytest.mark.parametrize("work", [ALONE, BY_A_CHILD])
def test_what_the_engine_does_is_our_own(work: str) -> None:
    with program(work) as engine, MachineWatch(engine.pid) as watch:
        go_on(engine, "done")
    _busy, own, foreign = taken(watch.states[0], watch.states[-1])
    assert foreign == 0
    assert own > BURNT / 2


def test_what_was_seen_of_a_child_that_nobody_waits_for_stays_our_own() -> None:
    with program(SEEN_AND_GONE) as engine:
        readings = Readings(engine.pid)
        first = readings.read()
        go_on(engine, "burnt")
        seen = readings.read()
        go_on(engine, "done")
        last = readings.read()
    assert taken(first, seen)[1] > BURNT / 2
    assert last.own_ticks >= seen.own_ticks
    assert taken(first, last)[2] == 0


def test_a_process_that_is_adopted_elsewhere_stays_our_own() -> None:
    with program(ADOPTED) as engine:
        readings = Readings(engine.pid)
        first = readings.read()
        go_on(engine, "deep")
        readings.read()
        go_on(engine, "done")
        last = readings.read()
    _busy, own, foreign = taken(first, last)
    assert own > BURNT / 2
    assert foreign == 0


def test_the_work_of_the_kernel_is_nobody_s(monkeypatch: pytest.MonkeyPatch) -> None:
    def process(own: int, *, serving: bool) -> machine._Process:
        return machine._Process(parent=0, serving=serving, own=own, waited=0)

    monkeypatch.setattr(
        machine, "_processes", lambda: {(2, 0): process(500, serving=True), (7, 9): process(30, serving=False)}
    )
    state = Readings(1).read()
    assert (state.own_ticks, state.foreign_ticks) == (0, 30)


def test_states_from_before_foreign_time_was_kept_have_their_old_bytes() -> None:
    old = {"at_ns": 1, "load1_milli": 2, "steal_ticks": 3, "busy_ticks": 4, "own_ticks": 5}
    assert MachineState.model_validate(old).model_dump(mode="json") == old
    new = old | {"foreign_ticks": 0}
    assert MachineState.model_validate(new).model_dump(mode="json") == new
