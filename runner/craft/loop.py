"""The whole loop in one go: dispatch, execute exactly the frozen commit, tell the next attempt why it was refused.

It ends with a verified report that passes, with the last attempt allowed, at a kill line, or where a person or another
machine has to do something first. Stopped at any moment, the same call goes on where it was.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from runner.craft.dispatch import Dispatch, candidate_of, dispatch, settled
from runner.craft.taken import CandidateError, taken
from runner.errors import SeatError, StateError
from runner.model.attempt import Attempt
from runner.model.verdict import Status
from runner.paths import RUNS, command, state_home
from runner.plan import runnable, target_of
from runner.readiness import require_ready
from runner.session import open_run, release, runs
from runner.standing import standing
from runner.steps.boots import DISTURBED, TOO_BUSY
from runner.steps.seats import load_manifest
from runner.steps.state import Run
from runner.workflow import execute

NO_ENGINE = ("desk", "none")
"""Seats whose adapter starts none."""


@dataclass(frozen=True)
class Carried:
    """How far an order came."""

    attempts: tuple[Attempt, ...]
    """All there were, each with what was found or judged."""
    code: int
    """Exit code of the last verdict; 1 where the last attempt gave no candidate."""
    clone: Path | None = None
    """Awaits a person."""
    run: str = ""
    """The last run; empty where nothing was executed."""


def carry_out(given: Dispatch, seat: str = "") -> Carried:
    """Attempt after attempt, each candidate executed on the order's seat or on ``seat``.

    Raises as :func:`runner.craft.dispatch.dispatch` where the order cannot be given at all, and as
    :func:`runner.session.open_run` and the run's steps where a candidate could not be judged: it waits, and the same
    call judges it.
    """
    order = runnable(given.file)
    require_ready(order, load_manifest(seat or target_of(order).seat))  # before anybody works on what nobody can judge
    bench, bound, run, code = given.bench, given.bound, "", Status.FAIL.exit_code
    while True:
        attempts = settled(bench, given.workspace)
        if not (attempts and attempts[-1].waits):
            made = dispatch(given)
            if isinstance(made, Path):
                return Carried(attempts, code if run else 0, clone=made, run=run)
            given = replace(given, hand_in=False) if given.hand_in else given
            if made.commit is None:
                return Carried(settled(bench, given.workspace), Status.FAIL.exit_code, run=run)
            attempts = settled(bench, given.workspace)
        executed, code = _judged(given, seat, candidate_of(given, attempts[-1]))
        run = executed.name
        if code == Status.INVALID.exit_code:
            _seat_can_judge(given, executed)
        attempts = settled(bench, given.workspace)
        last = attempts[-1]
        over = last.waits or code == 0 or bool(last.judged and last.judged.killed)
        if over or len(attempts) >= bound:
            return Carried(attempts, code, run=run)
        given.progress.note(f"attempt {last.number} was refused; {bound - last.number} left")


def _judged(given: Dispatch, seat: str, candidate: Path) -> tuple[Run, int]:
    """The run of the waiting candidate and its exit code: one that was stopped goes on."""
    run = open_run(
        given.order,
        seat=seat,
        resume=_stopped(given),
        candidate=candidate,
        progress=given.progress,
    )
    given.progress.note(f"run {run.name} in {run.folder}")
    try:
        return run, execute(run)
    except CandidateError as error:
        given.progress.note(f"{error.what}: {error.found}")
        return run, Status.FAIL.exit_code
    finally:
        release(run)


def _seat_can_judge(given: Dispatch, run: Run) -> None:
    """After a run that could not decide: a seat that is broken or busy must not use up a craftsperson's attempts.

    Raises StateError where the machine was too busy, and SeatError where the incumbent alone does not come up either;
    the run then judges nobody.
    """
    manifest = run.manifest
    if manifest.away or manifest.adapter in NO_ENGINE:
        return
    again = command("dispatch", given.order, "--to", given.name, "--execute")
    if run.journal.of(TOO_BUSY):
        given.bench.pass_over(run.name)
        unseen = len(run.journal.of(DISTURBED, explained=False))
        doubt = (
            f"disturbed blocks that no other process in sight explains (another container, or the candidate): {unseen}"
        )
        raise StateError(
            "the machine was too busy to measure on, so the run judges nobody",
            where=f"seat {manifest.name}, run {run.name}",
            found=doubt if unseen else "",
            next_step=f"when it is quiet: {again}",
        )
    given.progress.begin(f"seat {manifest.name} without the candidate", manifest.boot_seconds)
    try:
        with standing(manifest.name, sandboxed=True):
            return
    except SeatError as error:
        given.bench.pass_over(run.name)
        raise SeatError(
            "the seat does not come up without the candidate either, so the run judges nobody",
            where=f"seat {manifest.name}, run {run.name}",
            found=f"{error.what}: {error.found}",
            next_step=f"mend the seat, then {again}",
        ) from error


def _stopped(given: Dispatch) -> str:
    """The newest run of this candidate that has neither a report nor a refusal; empty for none."""
    candidate, passed_over = given.bench.candidate(), given.bench.passed_over()
    for one in reversed(runs()):
        if one.reported or one.order_digest != given.file.digest or one.run in passed_over:
            continue
        known = taken(state_home() / RUNS / one.run)
        if candidate and known and known.commit == candidate.commit:
            return one.run
    return ""


__all__ = ["Carried", "carry_out"]
