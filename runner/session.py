"""Run folders: opening a new one, opening an old one again, and what stands in them."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from runner.clock import now
from runner.craft.candidate import take
from runner.craft.taken import REFUSED
from runner.digest import sha256_bytes
from runner.errors import InputError, StateError
from runner.files import write_whole
from runner.model.base import Record
from runner.model.order import load_order
from runner.paths import RUNS, state_home, workspace
from runner.plan import runnable, target_of
from runner.readiness import require_finished, require_ready, require_written
from runner.steps.journal import Journal, events
from runner.steps.preflight import require_decidable
from runner.steps.seats import load_manifest
from runner.steps.state import Progress, Run

_locks: dict[Path, int] = {}


def open_run(
    order: Path, *, seat: str = "", resume: str = "", candidate: Path | None = None, progress: Progress
) -> Run:
    """A new run of ``order``, or the run ``resume`` again. A frozen ``candidate`` stays with the run it was given to.

    Raises as :func:`runner.craft.candidate.take`, InputError for an unknown run or an order other than the one the run
    was started with, an order that cannot be decided, StateError where another process works on the run, and SeatError
    for an order that waits for a seat or gate still to be written. What is refused leaves no run.
    """
    file = load_order(order)
    loaded = runnable(file)
    manifest = load_manifest(seat or target_of(loaded).seat)
    require_ready(loaded, manifest)
    require_finished(loaded, workspace())
    if not resume:
        require_decidable(loaded, manifest)
        if candidate is None:
            require_written(loaded, order, manifest)
    name = resume or _new_name()
    folder = state_home() / RUNS / name
    kept = folder / "order.yaml"
    if resume:
        if not kept.is_file():
            raise InputError("no such run", where=str(folder), found=resume, next_step="`runner status` lists the runs")
        if kept.read_bytes() != file.text.encode():
            raise StateError(
                "the order has changed since the run was started",
                where=str(order),
                expected=f"the bytes of {kept}",
                found=f"sha256 {file.digest}",
                next_step="start a new run",
            )
    else:
        folder.mkdir(parents=True)
        if candidate is not None:
            take(candidate, file, folder)
        write_whole(kept, file.text.encode())
    _lock(folder)
    return Run(
        name=name,
        folder=folder,
        workspace=workspace(),
        order=file,
        manifest=manifest,
        journal=Journal(folder / "journal.jsonl"),
        progress=progress,
        started_at=now(),
    )


def kept_order(name: str) -> Path:
    """The order of an earlier run. Raises InputError where there is no such run."""
    path = state_home() / RUNS / name / "order.yaml"
    if not path.is_file():
        raise InputError("no such run", where=str(path), found=name, next_step="`runner status` lists the runs")
    return path


def _new_name() -> str:
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(4)}"


def _lock(folder: Path) -> None:
    """Hold the run for this process; the lock ends with it, however it ends."""
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise StateError("another process works on this run", where=str(folder)) from None
    _locks[folder] = descriptor


def release(run: Run) -> None:
    """Let another process have the run."""
    os.close(_locks.pop(run.folder))


def summary(run: Run, code: int) -> tuple[dict[str, Any], str]:
    """What a run came to, or where its job lies while it is measured elsewhere."""
    if not (run.folder / "record.json").exists():
        job = run.folder / "job"
        return {"run": run.name, "exit_code": code, "job": str(job)}, f"job: {job}"
    record = json.loads((run.folder / "record.json").read_bytes())
    report = run.workspace / "reports" / record["plan"]["order"] / run.name
    verdicts = [
        {"gate": f"{one['gate']}@{one['version']}", "status": one["status"], "reasons": one["reasons"]}
        for one in record["verdicts"]
    ]
    value = {"run": run.name, "exit_code": code, "report": str(report), "verdicts": verdicts}
    width = max((len(one["gate"]) for one in verdicts), default=0)
    lines = [f"{one['gate']:<{width}}  {one['status']:<10}  {'; '.join(one['reasons'][:1])}" for one in verdicts]
    return value, "\n".join([*lines, f"report: {report}"])


class RunState(Record):
    """A run folder of this user."""

    run: str
    order: str
    order_digest: str
    state: str
    """The verdict, or the step in which it is or was stopped."""
    reported: bool
    """It has ended: with a report, or because its candidate does not build."""
    at_work: bool
    """A process works on it now."""


def runs() -> list[RunState]:
    """Every run folder of this user, oldest first."""
    return [_run_state(folder) for folder in sorted((state_home() / RUNS).glob("*")) if folder.is_dir()]


def _run_state(folder: Path) -> RunState:
    known = events(folder / "journal.jsonl")
    steps = [str(event.facts["step"]) for event in known if event.kind == "step-started"]
    verdicts = [str(event.facts["verdict"]) for event in known if event.kind in ("reported", REFUSED)]
    plan, order, busy = folder / "plan.json", folder / "order.yaml", at_work(folder)
    step = f"{'in' if busy else 'stopped in'} {steps[-1] if steps else 'start'}"
    return RunState(
        run=folder.name,
        order=str(json.loads(plan.read_bytes())["order"]) if plan.exists() else "not sealed",
        order_digest=sha256_bytes(order.read_bytes()) if order.exists() else "",
        state=verdicts[-1] if verdicts else step,
        reported=bool(verdicts),
        at_work=busy,
    )


def at_work(folder: Path) -> bool:
    """Whether a process holds the run."""
    path = folder / "lock"
    if not path.exists():
        return False
    with path.open("rb") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
