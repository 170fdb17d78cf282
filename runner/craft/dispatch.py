"""An order given to a craftsperson, attempt after attempt, until a candidate is frozen or the attempts are used up.

There is no state "done" here. What was attempted is finished when a signed report over the exact commit verifies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from runner import ledger
from runner.attest.trust import load_trust
from runner.brief.render import brief_of
from runner.check import check_file
from runner.craft import sandbox
from runner.craft.attempt import Task, handed_in, waiting, worked
from runner.craft.bench import CANDIDATE, Bench, benches
from runner.craft.candidate import allowed_files
from runner.craft.crew import craftsperson
from runner.craft.leases import alone, take_lease
from runner.craft.retry import told
from runner.craft.start import deviations, require_startable
from runner.craft.store import Store, digests, git
from runner.digest import canonical_json, sha256_file
from runner.errors import InputError, StateError
from runner.files import write_whole
from runner.kill_lines import struck, words_of
from runner.model.attempt import Attempt, CandidateFile, Judged
from runner.model.craftsperson import CraftspersonEntry
from runner.model.order import OrderFile, WorkOrder, load_order, parse_order
from runner.model.report import ReportPredicate
from runner.model.verdict import Status
from runner.paths import command
from runner.readiness import require_finished
from runner.steps.state import Progress
from runner.verify import verify
from runner.visible import shortened, visible

REASONS = 3
"""Of each gate, for the next brief and the history."""
WORDS = 600
"""Characters of them."""


@dataclass(frozen=True)
class Dispatch:
    """What an order is given with."""

    order: Path
    name: str
    workspace: Path
    checkout: Path
    progress: Progress
    deviation: str = ""
    """Why an agent may use the network although the order closes it; empty: it may not."""
    hand_in: bool = False
    """A person's clone is finished."""

    @cached_property
    def file(self) -> OrderFile:
        """The order as it stood when it was first read."""
        return load_order(self.order)

    @cached_property
    def entry(self) -> CraftspersonEntry:
        """Whom it is given to."""
        return craftsperson(self.workspace, self.name)

    @cached_property
    def allowed(self) -> tuple[str, ...]:
        """Files that may be changed."""
        return allowed_files(self.file)

    @cached_property
    def bench(self) -> Bench:
        """Where it is worked on."""
        return Bench.of(self.file)

    @cached_property
    def before(self) -> tuple[Attempt, ...]:
        """Attempts at other texts of this very version: a word more in its file makes no new order of it."""
        return earlier(self.bench, self.file.order.version, self.workspace)

    @property
    def bound(self) -> int:
        """How many attempts there may be at this text."""
        return max(self.entry.limits.attempts - len(self.before), 0)


def dispatch(given: Dispatch) -> Attempt | Path:
    """Attempts until one gives a candidate or none is left; the last one. For a person, the clone that awaits them.

    Raises InputError for an order that nobody can be given or that cannot be decided, StateError where files are held
    by another order, where a candidate waits to be judged, where the attempts are used up, where a kill line struck, or
    where the order is finished or changes meanwhile.
    """
    _may_start(given)
    bench, entry = given.bench, given.entry
    with bench.hold():
        store, head = Store.of(bench.folder / "store.git", given.checkout)
        files = git("ls-files", folder=given.checkout).decode().splitlines()
        with alone():
            _may_hold_more(given)
            bench.introduce(given.order, given.file.order.version)
            take_lease(bench, given.name, given.allowed, files)
        while True:
            attempts = settled(bench, given.workspace)
            _may_go_on(given, attempts)
            task = _task(given, attempts, head)
            given.progress.begin(f"attempt {task.number} by {given.name}", entry.limits.wall_seconds)
            if entry.kind == "person" and not given.hand_in:
                return waiting(task, store)
            attempt = handed_in(task, store) if entry.kind == "person" else worked(task, store)
            for note in (*attempt.session.interrupted, *attempt.session.meanwhile):
                given.progress.note(visible(f"attempt {attempt.number}: {note}"))
            for fault in attempt.findings:
                given.progress.note(f"attempt {attempt.number}: {fault.kind}: {fault.detail}")
            if attempt.waits:
                candidate_of(given, attempt)
            if attempt.commit is not None or attempt.number >= given.bound or entry.kind == "person":
                return attempt


def _may_start(given: Dispatch) -> None:
    order, entry = given.file.order, given.entry
    _ = given.allowed
    named = {one.name: one.max for one in order.people.craftspeople}
    if named and given.name not in named:
        raise InputError("the order is not for this craftsperson", expected=", ".join(named), found=given.name)
    if faults := check_file(given.order):
        raise InputError(
            "the order cannot be decided as it stands",
            found="\n    ".join(["", *map(str, faults)]),
            next_step=command("check", given.order),
        )
    require_finished(order, given.workspace)
    require_startable(given.name, entry, order, given.workspace, given.checkout, deviation=given.deviation)


def _may_hold_more(given: Dispatch) -> None:
    """Raises StateError where the craftsperson has as many other orders as this one's maker allows."""
    order = given.file.order
    named = {one.name: one.max for one in order.people.craftspeople}
    leases = [lease for bench in benches() if (lease := bench.lease()) and lease.craftsperson == given.name]
    others = sorted({lease.order for lease in leases} - {order.id})
    if named and len(others) >= named[given.name]:
        raise StateError(
            "too many orders at once",
            where=given.name,
            expected=f"at most {named[given.name]}",
            found=", ".join(others),
        )


def _may_go_on(given: Dispatch, attempts: Sequence[Attempt]) -> None:
    order, bound = given.file.order, given.bound
    last = attempts[-1] if attempts else None
    if sha256_file(given.order) != given.file.digest:
        raise StateError("the order was changed while it was worked on", where=str(given.order), found="other bytes")
    if last and last.judged and last.judged.verdict is Status.PASS:
        raise StateError("the order is finished", where=order.id, found=f"a verified report, run {last.judged.run}")
    if last and last.waits:
        candidate_of(given, last)
        raise StateError(
            "a candidate waits to be judged",
            where=order.id,
            found=f"attempt {last.number}, commit {last.commit}",
            next_step=command("dispatch", given.order, "--to", given.name, "--execute"),
        )
    _require_alive(order, given.before, attempts)
    if len(attempts) >= bound:
        before = f", and {len(given.before)} at other texts of version {order.version}" if given.before else ""
        raise StateError(
            "the attempts are used up",
            where=order.id,
            expected=f"at most {given.entry.limits.attempts}",
            found=f"{len(attempts)}{before}",
            next_step="a new version of the order, or a higher limits.attempts",
        )


def require_alive(file: OrderFile, workspace: Path, resumed: str = "") -> None:
    """Raises StateError where a kill line of the order struck a candidate: what is stopped is not executed either.

    ``resumed`` may end: the very run in which it struck.
    """
    bench = Bench.of(file)
    _require_alive(file.order, earlier(bench, file.order.version, workspace), settled(bench, workspace), resumed)


def _require_alive(order: WorkOrder, before: Sequence[Attempt], attempts: Sequence[Attempt], resumed: str = "") -> None:
    killed = next((one.judged for one in (*before, *attempts[-1:]) if one.judged and one.judged.killed), None)
    if killed and killed.run != resumed:
        lines = [words_of(line) for line in order.kill_lines if line.action == "stop" and line.gate in killed.killed]
        raise StateError(
            "a kill line struck: the work on this order is stopped",
            where=order.id,
            found=f"{'; '.join(lines) or ', '.join(killed.killed)} in run {killed.run}",
            next_step="a new version of the order, or another one",
        )


def settled(bench: Bench, workspace: Path) -> tuple[Attempt, ...]:
    """The bench's attempts, each candidate with what the newest verified signed report said about it meanwhile.

    The last candidate may be executed again (a busy machine decides nothing); what passed stays passed, and what
    a kill line struck stays struck.
    """
    attempts, passed_over = list(bench.attempts()), bench.passed_over()
    for place, one in enumerate(attempts):
        if one.judged and one.judged.run in passed_over:
            attempts[place] = one.model_copy(update={"judged": None})
            bench.keep(attempts[place])
    last = len(attempts) - 1
    open_to = {one.commit: place for place, one in enumerate(attempts) if one.waits or (one.judged and place == last)}
    if not open_to:
        return tuple(attempts)
    trust = load_trust(workspace)
    newest = {
        report.craft.attempts[-1].commit: (entry, report)
        for entry, report in ledger.load(workspace, trust).of(ReportPredicate)
        if report.craft
        and report.order.digest == bench.digest
        and report.run not in passed_over
        and report.craft.attempts[-1].commit in open_to
    }
    for commit, (entry, report) in newest.items():
        place = open_to[commit]
        known = attempts[place].judged
        final = known and (known.verdict is Status.PASS or known.killed)  # what stopped the work is not repeated away
        if known is None or (known.report != entry.digest and not final):
            found = verify(workspace / entry.where, trust, workspace)
            judged = _judged(report, found.digest, found.verdict)
            attempts[place] = attempts[place].model_copy(update={"judged": judged})
            bench.keep(attempts[place])
    return tuple(attempts)


def earlier(bench: Bench, version: int, workspace: Path) -> tuple[Attempt, ...]:
    """Attempts at other texts of this version of the order."""
    others = (one for one in benches() if one.folder != bench.folder)
    same = [one for one in others if (one.order, one.known().version) == (bench.order, version)]
    return tuple(attempt for one in same for attempt in settled(one, workspace))


def _judged(report: ReportPredicate, digest: str, verdict: Status) -> Judged:
    lines = parse_order(report.order.text).kill_lines
    refusals = [gate for gate in report.gates if gate.verdict is not Status.PASS]
    return Judged(
        run=report.run,
        report=digest,
        verdict=verdict,
        refused={gate.name: gate.verdict for gate in refusals},
        reasons=tuple(
            shortened(f"{gate.name} {gate.verdict}: {'; '.join(gate.reasons[:REASONS])}", WORDS) for gate in refusals
        ),
        killed=tuple(gate.name for gate in report.gates if struck(lines, gate.name, gate.verdict, gate.figures)),
    )


def _task(given: Dispatch, attempts: tuple[Attempt, ...], head: str) -> Task:
    """The next attempt. All attempts of a bench have one base; a clone begins with the last candidate there was."""
    order, entry, base = given.file.order, given.entry, attempts[0].base if attempts else head
    sandboxed = entry.kind == "agent" and bool(sandbox.version())
    more = (f"attempts before, at other texts of version {order.version}: {len(given.before)}",) if given.before else ()
    return Task(
        bench=given.bench,
        folder=given.bench.attempt_folder(len(attempts) + 1),
        number=len(attempts) + 1,
        name=given.name,
        entry=entry,
        brief=brief_of(given.order) + told(attempts, given.bound),
        order=given.order.resolve(),
        checkout=given.checkout,
        workspace=given.workspace,
        allowed=given.allowed,
        forbidden=order.scope.files_forbidden if order.scope else (),
        base=base,
        start=next((one.commit for one in reversed(attempts) if one.commit), base),
        deviations=(*deviations(entry, order, given.deviation), *more),
        sandboxed=sandboxed,
        accelerators=bool(order.constraints.gpu_allow),
    )


def candidate_of(given: Dispatch, attempt: Attempt) -> Path:
    """``candidate.json`` of an attempt that waits; made where a stop came between the attempt's end and this file."""
    path, known = given.bench.folder / CANDIDATE, given.bench.candidate()
    if known is not None and known.commit == attempt.commit:
        return path
    assert attempt.commit is not None and attempt.tree is not None
    store = Store(given.bench.folder / "store.git")
    candidate = CandidateFile(
        store=str(store.path),
        base=attempt.base,
        commit=attempt.commit,
        tree=attempt.tree,
        files=digests(store.files(attempt.base, attempt.commit, given.allowed)),
        history=given.bench.history(),
    )
    write_whole(path, canonical_json(candidate.model_dump(mode="json")))
    return path


__all__ = ["Dispatch", "candidate_of", "dispatch", "earlier", "require_alive", "settled"]
