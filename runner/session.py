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
from runner.errors import InputError, StateError
from runner.files import write_whole
from runner.model.order import load_order
from runner.paths import state_home, workspace
from runner.plan import runnable, target_of
from runner.readiness import require_ready
from runner.steps.journal import Journal
from runner.steps.seats import load_manifest
from runner.steps.state import Progress, Run

RUNS = "runs"
_locks: dict[Path, int] = {}


def open_run(
    order: Path, *, seat: str = "", resume: str = "", candidate: Path | None = None, progress: Progress
) -> Run:
    """A new run of ``order``, or the run ``resume`` again. A frozen ``candidate`` stays with the run it was given to.

    Raises as :func:`runner.craft.candidate.take`, InputError for an unknown run or an order other than the one the run
    was started with, StateError where another process works on the run, and SeatError for an order that waits for a
    seat or gate still to be written.
    """
    file = load_order(order)
    loaded = runnable(file)
    manifest = load_manifest(seat or target_of(loaded).seat)
    require_ready(loaded, manifest)
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


def runs() -> list[dict[str, str]]:
    """Every run folder of this user, oldest first."""
    found = []
    for folder in sorted((state_home() / RUNS).glob("*")):
        journal = Journal(folder / "journal.jsonl")
        steps, ended = journal.of("step-started"), journal.of("reported")
        state = (
            str(ended[-1].facts["verdict"]) if ended else f"stopped in {steps[-1].facts['step'] if steps else 'start'}"
        )
        plan = folder / "plan.json"
        order = str(json.loads(plan.read_bytes())["order"]) if plan.exists() else "not sealed"
        found.append({"run": folder.name, "order": order, "state": state})
    return found
