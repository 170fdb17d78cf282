"""A clone's own ``.git``, before and after a session: what would make git run, hide or fetch something.

Commits, branches, tags, stash, other work trees and a name are the craftsperson's, and so is what fetch, gc and rebase
leave. Hooks, filters, links to other repositories, replaced objects and files that the index calls unchanged are not:
nobody who looks at the clone with git would see what lies there. It is read without the clone's own setup, so nothing
in it runs.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

from runner.craft.store import Store, git
from runner.digest import sha256_bytes
from runner.errors import StateError
from runner.model.attempt import Finding
from runner.trees import walk
from runner.visible import visible

Listing = dict[str, str]
"""What it is to what stands there."""
TOLD = (
    *("HEAD", "packed-refs", "config.worktree", "commondir", "gitdir", "shallow", "hooks", "info", "modules"),
    *("objects/info/alternates", "objects/info/http-alternates", "refs"),
)
"""Files and folders below ``.git`` that are read, the configuration and the index apart."""
OWN = (
    *("user.", "author.", "committer.", "branch.", "advice.", "color.", "gc.", "pull.", "push.", "rebase.", "commit."),
    *("rerere.", "log.", "status.", "stash.", "fetch.", "index.", "init."),
)
"""Configuration that is a craftsperson's own; no program is named in it."""
MADE = ("info/refs", "info/commit-graph")
"""What git's own housekeeping writes among them."""
BRANCHES = "refs/heads/"
OWN_REFS = (
    *(BRANCHES, "refs/stash", "refs/tags/", "refs/remotes/", "refs/notes/", "refs/bisect/", "refs/original/"),
    *("refs/rewritten/", "refs/worktree/"),
)
"""Refs that hide nothing; a replaced object would."""
LARGEST = 1 << 20
"""Bytes of one of these files; none of git's own is larger."""
FLAGS = {"S": "skip-worktree", "s": "skip-worktree", "h": "assume-unchanged"}
SHOWN = 8


def read(clone: Path) -> Listing:
    """How the repository stands."""
    repository = clone / ".git"
    if repository.is_symlink() or not repository.is_dir():
        return {".git": "gone or replaced"}
    found = dict(_configuration(repository / "config"))
    for name in TOLD:
        for path in sorted((repository / name, *walk(repository / name))):
            about = _about(path)
            if about is not None:
                found |= _entry(str(path.relative_to(repository)), path, about)
    return found


def compare(clone: Path, before: Listing, store: Store) -> Iterator[Finding]:
    """One finding that names whatever is not as it was given."""
    after = read(clone)
    names = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    changed = [*names, *_flags(clone, store)]
    if changed:
        more = f" and {len(changed) - SHOWN} more" if len(changed) > SHOWN else ""
        detail = f"changed what its clone's git runs, hides or takes: {', '.join(changed[:SHOWN])}{more}"
        yield Finding(kind="repository-changed", detail=visible(detail))


def _about(path: Path) -> int | None:
    """The mode of a file, a link or something odd; None for folders and for nothing."""
    try:
        mode = path.lstat().st_mode
    except OSError:
        return None
    return None if stat.S_ISDIR(mode) else mode


def _entry(name: str, path: Path, mode: int) -> Listing:
    if not stat.S_ISREG(mode):
        return {name: "no plain file"}
    if path.stat().st_size > LARGEST:
        return {name: f"{path.stat().st_size} bytes"}
    data = path.read_bytes()
    if name == "HEAD":
        text = data.decode(errors="replace")
        return {} if text.startswith(f"ref: {BRANCHES}") or "/" not in text else {name: text}
    if name == "packed-refs":
        lines = [line for line in data.decode(errors="replace").splitlines() if not line.startswith(("#", "^"))]
        return {ref: value for value, _, ref in (line.partition(" ") for line in lines) if not ref.startswith(OWN_REFS)}
    if name.startswith((*OWN_REFS, *MADE)):
        return {}
    return {name: sha256_bytes(data) + (" executable" if mode & 0o111 else "")}


def _configuration(path: Path) -> Iterator[tuple[str, str]]:
    mode = _about(path)
    if mode is None or not stat.S_ISREG(mode):
        yield "config", "no plain file"
        return
    try:
        listed = git("config", "--file", str(path), "--no-includes", "--list", "-z").decode(errors="replace")
    except StateError as error:
        yield "config", error.found
        return
    for entry in listed.split("\0"):
        key, _, value = entry.partition("\n")
        if key and not key.startswith(OWN):
            yield f"config {key}", value


def _flags(clone: Path, store: Store) -> Iterator[str]:
    """Files that the clone's index says need no look, asked of the store's git."""
    index = clone / ".git" / "index"
    mode = _about(index)
    if mode is None or not stat.S_ISREG(mode):
        yield "index, which is no plain file"
        return
    try:
        listed = store.run("ls-files", "-v", "-z", GIT_INDEX_FILE=str(index)).decode(errors="replace")
    except StateError as error:
        yield f"index, which cannot be read: {error.found}"
        return
    for entry in listed.split("\0"):
        if flag := FLAGS.get(entry[:1]):
            yield f"index flag {flag} on {entry[2:]}"


__all__ = ["compare", "read"]
