"""One attempt: a fresh clone, a session, a look at everything it left, a frozen commit where nothing is wrong."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event

from runner.clock import now
from runner.craft import guard, repository, sandbox
from runner.craft.bench import REVIEWS, SEALED, Bench, benches, crafts
from runner.craft.command_line import NOT_RUN
from runner.craft.globs import permitted
from runner.craft.guard import Watched
from runner.craft.home import furnish
from runner.craft.interruption import AGAIN, ENDED, JOURNAL, STARTED, Interruption, interruption
from runner.craft.sandbox import Walls
from runner.craft.session import Setting, after_others, finding, hold
from runner.craft.store import REGULAR, Change, Store, digests, tree_digest, unlock
from runner.digest import canonical_json, sha256_bytes, sha256_file
from runner.errors import SeatError, StateError
from runner.files import write_whole
from runner.model.attempt import Attempt, Finding, Session
from runner.model.craftsperson import CraftspersonEntry, Limits
from runner.sandbox import devices
from runner.steps.journal import Journal
from runner.trees import DEEPEST, remove, too_deep
from runner.visible import shortened

BRIEF, CLONE, TRANSCRIPT = "BRIEF.md", "clone", "transcript.log"
GIVEN = "given.json"
"""How the clone's own git stood when it was made."""
FREE_BYTES = 500 << 20
"""Left on the disk before an attempt may begin."""
SHOWN, NAME = 20, 120
"""How many paths of a change are written down, and how many characters of each."""
PACKAGES = ("runner", "serve", "recipe", "carve_kernels")
IMPORTS = (
    "import importlib.util as u\n"
    f"for n in {PACKAGES!r}:\n s = u.find_spec(n)\n if s: print(n, (s.submodule_search_locations or [s.origin])[0])"
)
"""Prints where each package of the checkout would be imported from."""


@dataclass(frozen=True)
class Task:
    """What one attempt is about."""

    bench: Bench
    folder: Path
    """Where it works and is kept."""
    number: int
    name: str
    entry: CraftspersonEntry
    brief: str
    order: Path
    checkout: Path
    workspace: Path
    allowed: tuple[str, ...]
    forbidden: tuple[str, ...]
    base: str
    """Commit of the checkout; the change is measured against it."""
    start: str
    """Commit the clone begins with: the base, or the last candidate that a gate refused."""
    deviations: tuple[str, ...]
    sandboxed: bool
    accelerators: bool = False
    """The order allows GPUs."""

    @property
    def walls(self) -> Walls:
        folder = self.folder
        return Walls(
            checkout=self.checkout,
            clone=folder / CLONE,
            home=folder / "home",
            temporary=folder / "tmp",
            network=self.entry.limits.network == "open",
            devices=devices() if self.accelerators else (),
            readable=tuple(Path(path).expanduser() for path in self.entry.readable),
            trap=self.bench.folder / SEALED,
        )


def worked(task: Task, store: Store) -> Attempt:
    """A whole attempt of an agent; one that was interrupted goes on in its clone.

    Raises as :func:`prepare`, and SeatError where the command could not be run.
    """
    earlier = unfinished(task)
    if earlier:
        task = replace(task, base=earlier.base, start=earlier.start, brief=task.brief + AGAIN)
        os.close(after_others(task.folder))
        unlock(task.walls.clone / ".git")
        _equip(task)
    else:
        prepare(task, store)
    session, found = sit(task)
    if earlier:
        session = session.model_copy(update={"interrupted": earlier.told})
        found = [*earlier.findings, *found]
    return _look(task, store, session, found)


def unfinished(task: Task) -> Interruption | None:
    """The attempt that something interrupted, if any.

    Raises StateError where it is a person's, who has not handed it in, and an agent is to go on.
    """
    earlier = interruption(task.folder, task.walls.clone)
    if earlier and earlier.kind == "person" != task.entry.kind:
        raise StateError(
            "a person works on this attempt and has not handed it in",
            where=str(task.walls.clone),
            found=f"given to a person, now to {task.name}",
            next_step=f"hand it in with --hand-in, or take it back: remove {task.walls.clone}",
        )
    return earlier


def sit(task: Task, stop: Event | None = None) -> tuple[Session, list[Finding]]:
    """The session in a prepared clone, and what was found wrong with it from outside; ``stop`` interrupts it."""
    busy = [other.folder for other in benches() if other.folder != task.bench.folder and other.at_work()]
    own = (task.walls.clone, task.walls.home, task.walls.temporary, task.bench.folder / REVIEWS, *busy)
    watched = Watched(task.order, task.checkout, task.workspace, crafts(), own)
    before, journal = guard.read(watched), Journal(task.folder / JOURNAL)
    _started(task, journal)
    try:
        setting = _setting(task, task.entry.argv, task.folder / TRANSCRIPT, task.entry.limits, journal)
        held = hold(replace(setting, stop=stop))
    except SeatError:
        remove(task.folder)  # it never began
        raise
    journal.write(ENDED, exit_code=held.session.exit_code)
    compared = guard.compare(before, watched, held.wrote)
    session = held.session.model_copy(update={"meanwhile": tuple(map(shortened, compared.meanwhile))})
    return session, [*held.findings, *compared.findings]


def _started(task: Task, journal: Journal) -> None:
    journal.write(
        STARTED,
        craftsperson=task.name,
        attempt=task.number,
        by=task.entry.kind,
        base=task.base,
        start=task.start,
    )


def waiting(task: Task, store: Store) -> Path:
    """A person's clone, made where there is none yet, or one that a stop left half made."""
    if not interruption(task.folder, task.walls.clone):
        prepare(task, store)
        _started(task, Journal(task.folder / JOURNAL))
    return task.walls.clone


def handed_in(task: Task, store: Store) -> Attempt:
    """What a person made of the clone. Raises StateError where none was given."""
    if not interruption(task.folder, task.walls.clone):
        raise StateError("nothing was given that could be handed in", where=str(task.walls.clone))
    transcript = task.folder / TRANSCRIPT
    transcript.touch()
    session = Session(
        sandbox="none",
        network="open",
        started_at=Journal(task.folder / JOURNAL).of(STARTED)[0].at,
        ended_at=now(),
        exit_code=0,
        heartbeats=0,
        transcript=sha256_file(transcript),
        transcript_bytes=0,
        unseen=("everything a person did: nobody watched",),
    )
    return _look(task, store, session, [])


def prepare(task: Task, store: Store) -> None:
    """Clone, home and brief, all fresh. Raises StateError where the disk is too full."""
    walls = task.walls
    remove(task.folder)
    task.folder.mkdir(parents=True)
    needed, free = FREE_BYTES + task.entry.limits.disk_bytes, shutil.disk_usage(task.folder).free
    if free < needed:
        raise StateError(
            "the disk is too full for an attempt",
            where=str(task.folder),
            expected=f"{needed >> 20} MiB free",
            found=f"{free >> 20} MiB",
            next_step="free the disk, or lower limits.disk_bytes of the craftsperson",
        )
    task.bench.trap()
    store.clone(task.start, walls.clone, named=task.entry.kind == "agent")
    write_whole(task.folder / GIVEN, canonical_json(repository.read(walls.clone)))
    _equip(task)


def _equip(task: Task) -> None:
    """Home, temporary folder and brief."""
    walls = task.walls
    fresh = not walls.home.exists()
    for folder in (walls.home, walls.temporary):
        folder.mkdir(parents=True, exist_ok=True)
    if fresh:  # in one that a session has used, a link of its making could lead a copy elsewhere
        furnish(walls.home, task.entry.home)
    for name in ("brief.md", f"home/{BRIEF}"):
        write_whole(task.folder / name, task.brief.encode())


def _look(task: Task, store: Store, session: Session, found: list[Finding]) -> Attempt:
    """Freeze the clone's files and look at the change; the attempt, kept on the bench."""
    commit: str | None = None
    changes: tuple[Change, ...] = ()
    try:
        commit, changes = _frozen(task, store)
        found += _of_changes(task, store, changes, commit)
        found += _of_trap(task, store, changes, commit)
        given = json.loads((task.folder / GIVEN).read_bytes())
        found += repository.compare(task.walls.clone, given, store)
    except StateError as error:
        found.append(finding("not-a-file", f"the clone cannot be read: {error.what}: {error.found}"))
    for folder in (task.walls.clone, task.walls.home, task.walls.temporary):
        if deep := too_deep(folder):
            place = shortened(str(deep.relative_to(task.folder)), NAME)
            found.append(finding("not-a-file", f"folders more than {DEEPEST} below one another: {place}"))
    kinds = {one.kind for one in found}
    if session.exit_code in NOT_RUN and kinds == {"failed", "no-change"}:
        words = next(one.detail for one in found if one.kind == "failed")
        remove(task.walls.clone)
        raise SeatError(
            "the craftsperson's command could not be run, so no attempt is counted",
            where=" ".join(task.entry.argv),
            found=words,
            next_step=f"mend argv (or readable) of {task.name}; its transcript: {task.folder / TRANSCRIPT}",
        )
    refused = kinds & {"outside-allowed", "not-a-file"}
    if task.entry.kind == "agent" and task.walls.clone.is_dir() and not refused:
        found += _imports(task)  # runs Python in the clone: never with files there that the order does not allow
    attempt = Attempt(
        number=task.number,
        craftsperson=task.name,
        brief=sha256_bytes(task.brief.encode()),
        base=task.base,
        session=session,
        findings=tuple(one.model_copy(update={"detail": shortened(one.detail)}) for one in found),
        deviations=task.deviations,
        changed=_first([change.path for change in changes]),
        commit=None if found else commit,
        tree=None if found or commit is None else tree_digest(digests(store.files(task.base, commit, task.allowed))),
    )
    for folder in (task.walls.home, task.walls.temporary):
        remove(folder)
    task.bench.keep(attempt)
    return attempt


def _first(paths: Sequence[str]) -> tuple[str, ...]:
    """The history of nine attempts has to fit into a report, whatever one of them did."""
    shown = tuple(shortened(path, NAME) for path in paths[:SHOWN])
    return (*shown, f"… and {len(paths) - SHOWN} more") if len(paths) > SHOWN else shown


def _frozen(task: Task, store: Store) -> tuple[str, tuple[Change, ...]]:
    clone = task.walls.clone
    if clone.is_symlink() or not clone.is_dir():
        raise StateError("it was removed or replaced", found=str(clone))
    (task.folder / "index.lock").unlink(missing_ok=True)
    commit = store.freeze(clone, task.base, task.folder / "index", f"attempt-{task.number}")
    return commit, store.changes(task.base, commit)


def _of_changes(task: Task, store: Store, changes: tuple[Change, ...], commit: str) -> Iterator[Finding]:
    outside = [change.path for change in changes if not permitted(change.path, task.allowed)]
    if denied := [change.path for change in changes if permitted(change.path, task.forbidden)]:
        yield finding("outside-allowed", f"changed {', '.join(denied)}, which the order forbids")
    if outside:
        yield finding("outside-allowed", f"changed {', '.join(outside)}; allowed: {', '.join(task.allowed)}")
    if odd := [change.path for change in changes if change.path not in outside and change.mode not in REGULAR]:
        yield finding("not-a-file", f"links, repositories inside the clone or removed files: {', '.join(odd)}")
    said = "whatever was said about success"
    if not any(change.content for change in changes):
        yield finding("no-change", f"the bytes of every file are those of the base, {said}")
    elif not store.rewrites(task.start, commit):
        yield finding("no-change", f"the bytes of every file are those that the clone began with, {said}")


def _of_trap(task: Task, store: Store, changes: tuple[Change, ...], commit: str) -> Iterator[Finding]:
    trap = task.bench.trap().encode()
    texts = [store.run("cat-file", "blob", f"{commit}:{one.path}") for one in changes if one.mode in REGULAR]
    transcript = task.folder / TRANSCRIPT
    if any(trap in text for text in (*texts, transcript.read_bytes() if transcript.is_file() else b"")):
        yield finding("sealed-read", "what it printed or wrote repeats a seed that only the runner may read")


def _setting(task: Task, argv: tuple[str, ...], transcript: Path, limits: Limits, journal: Journal) -> Setting:
    walls, inside = task.walls, task.sandboxed
    clone = walls.checkout if inside else walls.clone
    home = sandbox.HOME if inside else walls.home
    told = tuple(word.replace("{clone}", str(clone)).replace("{brief}", str(home / BRIEF)) for word in argv)
    passed = {name: os.environ[name] for name in task.entry.environment if name in os.environ}
    own = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(home),
        "TMPDIR": str(sandbox.TEMPORARY if inside else walls.temporary),
        "LANG": "C.UTF-8",
        "PYTHONPYCACHEPREFIX": str((sandbox.TEMPORARY if inside else walls.temporary) / "pycache"),
        "PYTHONPATH": os.pathsep.join((str(clone), str(clone / "kernels"))),
        **{f"CARVE_{name}": str(home / name.lower()) for name in ("STATE", "CONFIG", "CACHE")},
    }
    given = home / BRIEF if task.entry.brief == "stdin" else Path(os.devnull)
    return Setting(told, passed | own, given, transcript, walls, limits, journal, inside)


def _imports(task: Task) -> Iterator[Finding]:
    """Where the session's Python takes the checkout's packages from."""
    limits = task.entry.limits.model_copy(update={"wall_seconds": 60, "output_bytes": 10_000})
    told = task.folder / "imports.log"
    told.unlink(missing_ok=True)
    journal = Journal(task.folder / JOURNAL)
    setting = _setting(task, (sys.executable, "-c", IMPORTS), told, limits, journal)
    session = hold(setting).session
    clone = setting.walls.checkout if task.sandboxed else setting.walls.clone
    lines = [line.partition(" ") for line in told.read_text(errors="replace").splitlines()]
    outside = [f"{name} from {path}" for name, _, path in lines if not Path(path).is_relative_to(clone)]
    if session.exit_code or outside:
        detail = "; ".join(outside) or f"could not be asked, exit code {session.exit_code}"
        yield finding("imports-outside", f"tests in the clone would import other code than the clone's: {detail}")


__all__ = ["JOURNAL", "Task", "handed_in", "prepare", "sit", "unfinished", "waiting", "worked"]
