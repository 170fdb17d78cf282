"""What no session may change, read before and after it: checkout, workspace, keys, other clones, the runner's Python.

In a sandbox none of it can be reached; without one, and against a sandbox that leaks, this is what names the deed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from runner.craft.store import git
from runner.digest import sha256_file
from runner.model.attempt import Finding, FindingKind
from runner.paths import config_home
from runner.trees import walk
from runner.visible import visible

Listing = dict[str, str]
"""Path or name to what stands there."""
SHOWN = 8
OURS = frozenset({"store.git", "lock", "lease.json", "journal.jsonl", "transcript.log", "ledger"})
"""What the runner itself writes while a session lasts."""


@dataclass(frozen=True)
class Watched:
    """Where to look."""

    order: Path
    checkout: Path
    workspace: Path
    crafts: Path
    """Folder of all orders' attempts."""
    own: tuple[Path, ...]
    """Folders that are the session's, or another session's that is at work now."""


@dataclass(frozen=True)
class Reading:
    """One reading of all of it."""

    order: str
    setup: Listing
    refs: Listing
    files: Listing
    places: Listing
    code: Listing
    """What this process runs from, outside the checkout too."""
    hooks: Listing
    """What every Python of this environment runs at its start."""


def read(watched: Watched) -> Reading:
    """How it stands now. Runs git on the checkout."""
    main = watched.checkout / ".git"
    others = [path for path in watched.crafts.glob("*/attempts/*/clone/.git") if path.parent not in watched.own]
    return Reading(
        order=sha256_file(watched.order) if watched.order.is_file() else "gone",
        setup=setup(watched.checkout),
        refs={name: value for one in (main, *others) for name, value in _refs(one, ours=one == main)},
        files=_uncommitted(watched.checkout),
        places={str(path): _stamp(path) for path in _files(watched)},
        code=_stamps(_code()),
        hooks=_stamps(_hooks()),
    )


@dataclass(frozen=True)
class Compared:
    """What is not as it was."""

    findings: tuple[Finding, ...] = ()
    meanwhile: tuple[str, ...] = ()
    """What somebody else changed."""


@dataclass(frozen=True)
class _Moved:
    """Things of one kind that changed."""

    kind: FindingKind
    what: str
    names: tuple[str, ...]


def compare(before: Reading, watched: Watched, wrote: tuple[str, ...] | None = None) -> Compared:
    """Whatever is not as it was: a finding where the session may have done it, a note where it was somebody else.

    ``wrote`` is every path outside its own folders that the session asked to change. Without it nobody knows who
    changed what, and everything is the session's.
    """
    findings, meanwhile = [], []
    for moved in _moved(before, watched):
        by_it = tuple(name for name in moved.names if wrote is None or _named(name, wrote))
        if by_it:
            findings.append(Finding(kind=moved.kind, detail=visible(f"{moved.what}: {_listed(by_it)}")))
        if others := tuple(name for name in moved.names if name not in by_it):
            meanwhile.append(f"changed during the session, not by it: {_listed(others)}")
    return Compared(tuple(findings), tuple(meanwhile))


def _moved(before: Reading, watched: Watched) -> Iterator[_Moved]:
    if (now := setup(watched.checkout)) != before.setup:
        # Git would run what stands there now, so nothing more is asked of it.
        yield _differing("main-changed", "the repository's own setup was changed", before.setup, now)
        return
    after = read(watched)
    if after.order != before.order:
        what = f"edited after its brief was made (sha256 {before.order}, now {after.order})"
        yield _Moved("order-changed", what, (str(watched.order),))
    yield _differing("main-changed", "edits outside the clone, in the checkout", before.files, after.files)
    refs = {name: value for name, value in after.refs.items() if not _begun(Path(name), before.refs, watched)}
    yield _differing("refs-changed", "branches, tags or stash that are not its own", before.refs, refs)
    told = {str(watched.order), *after.files, *before.files}
    made_by_runs = str(watched.workspace / "reports")
    places = {
        path: stamp
        for path, stamp in after.places.items()
        if path in before.places or not (path.startswith(made_by_runs) or _begun(Path(path), before.places, watched))
    }
    old, new = ({path: at for path, at in part.items() if path not in told} for part in (before.places, places))
    yield _differing("outside-clone", "written or removed outside the clone", old, new)
    running = _stamps(Path(path) for path in before.code)  # what was loaded meanwhile is ours
    what = "written or removed where the runner itself is run from"
    yield _differing("outside-clone", what, before.code | before.hooks, running | after.hooks)


def _differing(kind: FindingKind, what: str, before: Listing, after: Listing) -> _Moved:
    names = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    return _Moved(kind, what, tuple(names))


def _named(name: str, wrote: Iterable[str]) -> bool:
    """Whether one of the paths is this one, a folder above it or, of a ref that git told by its name, its file."""
    if name.startswith("/"):
        folder, last = os.path.split(name)
        name = f"{os.path.realpath(folder)}/{last}"
        return any(name == path or name.startswith(f"{path}/") for path in wrote)
    return any(path.endswith((f"/{name}", f"/{name}.lock", "/packed-refs", "/packed-refs.lock")) for path in wrote)


def _begun(path: Path, before: Listing, watched: Watched) -> bool:
    """Whether it belongs to another order's attempt that began meanwhile: the runner made it."""
    if not path.is_relative_to(watched.crafts) or str(path) in before:
        return False
    order, *rest = path.relative_to(watched.crafts).parts
    attempt = watched.crafts.joinpath(order, *rest[:2])
    mine = any(own.is_relative_to(watched.crafts / order) for own in watched.own[:1])
    return not mine and not any(name.startswith(f"{attempt}/") for name in before)


def _listed(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def setup(checkout: Path) -> Listing:
    """Digests of the files that tell git what to run, read without git."""
    repository = checkout / ".git"
    paths = [repository, repository / "config", repository / "info" / "attributes", *(repository / "hooks").glob("*")]
    return {str(path): sha256_file(path) for path in sorted(paths) if path.is_file()}


def _refs(repository: Path, *, ours: bool) -> Iterator[tuple[str, str]]:
    """Refs, head and stash as their files stand; of our own worktree, whose refs are in another folder, as git says."""
    if repository.is_file() and not ours:
        yield str(repository), sha256_file(repository)  # where it leads is its maker's
        return
    if repository.is_file():
        listed = git("for-each-ref", "--format=%(refname) %(objectname)", folder=repository.parent).decode()
        yield from ((name, value) for name, value in map(str.split, listed.splitlines()))
        return
    paths = [*walk(repository / "refs"), *(repository / name for name in ("HEAD", "packed-refs"))]
    for path in sorted([*paths, repository / "logs" / "refs" / "stash"]):
        if path.is_file():
            yield str(path), sha256_file(path)


def _uncommitted(checkout: Path) -> Listing:
    """Paths that differ from the checkout's commit, each with what stands there."""
    status = git("status", "--porcelain=v1", "-z", "--untracked-files=all", "--no-renames", folder=checkout)
    found: Listing = {}
    for entry in status.decode(errors="surrogateescape").split("\0"):
        if entry:
            path = checkout / entry[3:]
            found[str(path)] = entry[:2] + (sha256_file(path) if path.is_file() else "")
    return found


def _files(watched: Watched) -> Iterator[Path]:
    """Every file of the workspace, of this user's keys and of all attempts, but for what is somebody's own."""
    workspace = watched.workspace
    for top in (workspace / "orders", workspace / "canon", workspace / "reports", config_home(), watched.crafts):
        yield from (
            path
            for path in walk(top, lambda folder: folder.name not in OURS and folder not in watched.own)
            if path.name not in OURS
        )


def _code() -> Iterator[Path]:
    files = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    yield from (Path(file) for file in files if file)


def _hooks() -> Iterator[Path]:
    for folder in {Path(entry) for entry in sys.path if entry}:
        yield from (*folder.glob("*.pth"), *(folder / f"{name}customize.py" for name in ("site", "user")))


def _stamps(paths: Iterable[Path]) -> Listing:
    return {str(path): _stamp(path) for path in paths}


def _stamp(path: Path) -> str:
    try:
        about = path.lstat()
    except OSError:
        return "gone"
    return f"{about.st_size} {about.st_mtime_ns} {about.st_ino}"


__all__ = ["Compared", "Reading", "Watched", "compare", "read", "setup"]
