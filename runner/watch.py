"""What happens now, from the journals on disk: of a run, and of an attempt. Watching changes nothing."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Literal

from runner.clock import now
from runner.craft.attempt import JOURNAL
from runner.craft.bench import benches
from runner.errors import InputError, StateError
from runner.model.base import Record
from runner.model.plan import Plan
from runner.paths import RUNS, state_home
from runner.session import at_work, runs
from runner.steps.journal import Event, events

IDLE = "nothing runs now, and no craftsperson is at work"
BEGIN = "Begin in another terminal: `runner execute ORDER` or `runner dispatch ORDER --to NAME`"
BootState = Literal["planned", "running", "ended", "aborted"]


class BootPicture(Record):
    """One planned boot."""

    id: str
    state: BootState
    ended: str
    """How it ended, in the record's word."""
    done: int
    windows: int


class Picture(Record):
    """One moment."""

    what: str
    """``run NAME of ORDER`` or ``attempt N of ORDER by NAME``."""
    step: str
    since: str
    """When the present step, boot or window began."""
    now: str
    """The boot or window that is open; the last heartbeat of an attempt."""
    boots: tuple[BootPicture, ...]
    done: int
    """Windows that are kept, of ``windows``."""
    windows: int
    seconds_left: int | None
    """By the plan's own expectation."""
    disturbed: int
    notes: tuple[str, ...]
    ended: bool
    idle: str = ""
    """That nothing is at work and what to do about it, where nobody asked for this run by name."""


def picture(run: str = "") -> Picture:
    """The run of this name; without one, what is at work now, or else the newest run.

    Raises InputError for a name that no run has, StateError where there is no run at all.
    """
    if not run:
        for bench in benches():
            if bench.at_work():
                return _attempt(bench.order, bench.attempt_folder(len(bench.attempts()) + 1))
        known = runs()
        if not known:
            raise StateError(IDLE, where=str(state_home()), found="no run yet", next_step=BEGIN)
        busy = [one.run for one in known if one.at_work]
        newest = _run(state_home() / RUNS / (busy or [one.run for one in known])[-1])
        return newest if busy else newest.model_copy(update={"idle": f"{IDLE}. {BEGIN}. The newest run was:"})
    folder = state_home() / RUNS / run
    if not folder.is_dir():
        raise InputError("no such run", where=str(folder), found=run, next_step="`runner status` lists the runs")
    return _run(folder)


def _run(folder: Path) -> Picture:
    told = events(folder / "journal.jsonl")
    path = folder / "plan.json"
    plan = Plan.model_validate_json(path.read_bytes()) if path.is_file() else None
    closed = {str(event.facts["window"]) for event in told if event.kind == "window-closed"}
    boots = tuple(_boot(plan, boot.id, told, closed) for boot in plan.boots) if plan else ()
    over = {boot.id for boot in boots if boot.state in ("ended", "aborted")}
    waiting = [one for one in plan.windows if one.id not in closed and one.boot not in over] if plan else []
    left = sum(window.seconds for window in waiting)
    left += sum(boot.seconds for boot in plan.boots if boot.id not in over) if plan else 0
    step = next((str(event.facts["step"]) for event in reversed(told) if event.kind == "step-started"), "start")
    reported = [str(event.facts["verdict"]) for event in told if event.kind == "reported"]
    last = told[-1] if told else None
    return Picture(
        what=f"run {folder.name} of {plan.order if plan else 'an order that is not sealed yet'}",
        step=f"reported {reported[-1]}" if reported else step,
        since=last.at if last else "",
        now=_open(told),
        boots=boots,
        done=len(closed),
        windows=len(plan.windows) if plan else 0,
        seconds_left=None if plan is None or reported else left,
        disturbed=sum(event.kind == "block-disturbed" for event in told),
        notes=tuple(f"kill line {event.facts['gate']} struck" for event in told if event.kind == "killed"),
        ended=bool(reported) or not at_work(folder),
    )


def _boot(plan: Plan, boot: str, told: list[Event], closed: set[str]) -> BootPicture:
    windows = [window.id for window in plan.windows if window.boot == boot]
    kinds = {event.kind: event for event in told if event.facts.get("planned") == boot}
    state: BootState = "planned"
    for kind, name in (("boot-started", "running"), ("boot-aborted", "aborted"), ("boot-ended", "ended")):
        if kind in kinds:
            state = name  # type: ignore[assignment]
    ended = str(kinds["boot-ended"].facts["ended"]) if "boot-ended" in kinds else ""
    return BootPicture(id=boot, state=state, ended=ended, done=len(closed & set(windows)), windows=len(windows))


def _open(told: list[Event]) -> str:
    """The last thing that began and has not ended."""
    for event in reversed(told):
        if event.kind == "window-opened":
            return f"window {event.facts['window']} ({event.facts['variant']})"
        if event.kind == "boot-started":
            return f"boot {event.facts['planned']}"
        if event.kind in ("boot-ended", "step-ended", "step-started", "reported"):
            return ""
    return ""


def _attempt(order: str, folder: Path) -> Picture:
    told = events(folder / JOURNAL)
    first, last = (told[0], told[-1]) if told else (None, None)
    beat = json.dumps({name: last.facts[name] for name in sorted(last.facts)}) if last else ""
    return Picture(
        what=f"attempt {folder.name} of {order} by {first.facts.get('craftsperson', '') if first else ''}",
        step="session" if first else "clone",
        since=last.at if last else "",
        now=beat,
        boots=(),
        done=0,
        windows=0,
        seconds_left=None,
        disturbed=0,
        notes=(),
        ended=False,
    )


def age(picture: Picture) -> int:
    """Seconds since the last thing was written down."""
    if not picture.since:
        return 0
    return round((datetime.fromisoformat(now()) - datetime.fromisoformat(picture.since)).total_seconds())


__all__ = ["BootPicture", "Picture", "age", "picture"]
