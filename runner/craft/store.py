"""The repository of an order's attempts. It lies where no craftsperson reaches, and no git runs on a clone's own setup.

A clone's ``.git`` is the craftsperson's: hooks, filters and monitors in it are commands. So a clone's files are read as
the work tree of this repository, and what is frozen is the files as they lie there, committed or not.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from runner.craft.globs import permitted
from runner.digest import sha256_bytes, sha256_json
from runner.errors import InputError, StateError
from runner.trees import walk

SECONDS = 120
REGULAR = ("100644", "100755")
_ENVIRONMENT = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    **{
        f"GIT_{who}_{what}": value
        for who in ("AUTHOR", "COMMITTER")
        for what, value in (("NAME", "runner"), ("EMAIL", "runner@localhost"), ("DATE", "2000-01-01T00:00:00Z"))
    },
}
"""A frozen commit is a function of its tree and its parent, whoever makes it and whenever."""


def git(*words: str, folder: Path | None = None, environment: Mapping[str, str] | None = None) -> bytes:
    """Standard output of one git command. Raises StateError with git's own words."""
    # A seat's own machine has no git, and imports this all the same.
    from git import Git  # noqa: PLC0415
    from git.exc import GitCommandError  # noqa: PLC0415

    ours = _ENVIRONMENT | dict(environment or {})
    # Inside a hook, or under an alias, these name another repository, and git would work on that one.
    theirs = [f"--unset={name}" for name in os.environ if name.startswith("GIT_") and name not in ours]
    try:
        answer = Git(folder).execute(
            ["env", *theirs, "git", *words],
            env=ours,
            stdout_as_string=False,
            strip_newline_in_stdout=False,
            kill_after_timeout=SECONDS,
        )
    except GitCommandError as error:
        verb = next(word for word in words if not word.startswith("-"))
        raise StateError(f"git {verb} failed", where=str(folder or ""), found=str(error.stderr).strip()) from error
    assert isinstance(answer, bytes), "asked for bytes"
    return answer


@dataclass(frozen=True)
class Change:
    """One path that differs from the base."""

    path: str
    mode: str
    """File mode in the candidate's tree; ``000000`` for a file that is gone."""
    content: bool
    """Its bytes differ, not its mode alone."""


@dataclass(frozen=True)
class Store:
    """``store.git`` of one order."""

    path: Path

    @classmethod
    def of(cls, path: Path, checkout: Path) -> tuple[Store, str]:
        """Make or open it, bring the checkout's present commit in, and give that commit's id.

        Only where nobody else works on it: what a stop left locked or half made becomes whole. Raises
        InputError where the checkout is no git repository.
        """
        store = cls(path)
        if not (checkout / ".git").exists():
            raise InputError("the checkout is no git repository", where=str(checkout), expected="a clone of it")
        unlock(path)
        git("init", "--quiet", "--bare", str(path))
        store.run("fetch", "--quiet", "--no-tags", str(checkout), "HEAD")
        return store, store.text("rev-parse", "FETCH_HEAD")

    def run(self, *words: str, **environment: str) -> bytes:
        """One git command on this repository."""
        return git(f"--git-dir={self.path}", *words, environment=environment)

    def text(self, *words: str, **environment: str) -> str:
        """The same, as one line."""
        return self.run(*words, **environment).decode().strip()

    def clone(self, commit: str, target: Path, *, named: bool = False) -> None:
        """A repository of its own at ``commit``: no remote, no other branch, no tag, no stash.

        ``named``: commits in it need no name; a person has one.
        """
        git("init", "--quiet", "--initial-branch=work", str(target))
        self.run("update-ref", "refs/heads/start", commit)
        git("fetch", "--quiet", "--no-tags", str(self.path), "refs/heads/start", folder=target)
        git("reset", "--quiet", "--hard", "FETCH_HEAD", folder=target)
        git("config", "gc.auto", "0", folder=target)
        if named:
            git("config", "user.name", "craftsperson", folder=target)
            git("config", "user.email", "craftsperson@localhost", folder=target)

    def freeze(self, clone: Path, base: str, index: Path, name: str) -> str:
        """Commit the clone's files as they lie there onto ``base``; the commit's id, kept under ``name``."""
        on_files = {"GIT_INDEX_FILE": str(index), "GIT_WORK_TREE": str(clone)}
        self.run("read-tree", base, **on_files)
        self.run("add", "--all", **on_files)
        tree = self.text("write-tree", **on_files)
        commit = self.text("commit-tree", tree, "-p", base, "-m", name)
        self.run("update-ref", f"refs/heads/{name}", commit)
        return commit

    def changes(self, base: str, commit: str) -> tuple[Change, ...]:
        """Every path that differs, sorted."""
        words = self.run("diff-tree", "-r", "-z", "--no-renames", "--raw", base, commit).decode(errors="replace")
        fields, found = words.split("\0"), []
        for about, path in zip(fields[:-1:2], fields[1::2], strict=True):
            _, mode, before, after, _ = about.split(" ")
            found.append(Change(path, mode, before != after))
        return tuple(found)

    def rewrites(self, base: str, commit: str) -> bool:
        """Whether any file's bytes differ; another mode alone is no change."""
        return any(change.content for change in self.changes(base, commit))

    def files(self, base: str, commit: str, allowed: Sequence[str]) -> dict[str, bytes]:
        """The changed files that an order takes, by path. Raises InputError for any other change."""
        found = {}
        for change in self.changes(base, commit):
            if not permitted(change.path, allowed) or change.mode not in REGULAR:
                raise InputError(
                    "the candidate changes more than its order allows",
                    where=change.path,
                    expected=f"regular files among {', '.join(allowed)}",
                    found=f"mode {change.mode}",
                    next_step="dispatch the order again",
                )
            found[change.path] = self.run("cat-file", "blob", f"{commit}:{change.path}")
        return found


def unlock(repository: Path) -> None:
    """Remove the locks that a git left which was ended by force; only where none works on the repository now."""
    if repository.is_symlink():
        return
    for path in (*repository.glob("*.lock"), *walk(repository / "refs")):
        if path.suffix == ".lock" and not path.is_dir():
            path.unlink()


def digests(files: dict[str, bytes]) -> dict[str, str]:
    """SHA-256 of each file."""
    return {path: sha256_bytes(data) for path, data in sorted(files.items())}


def tree_digest(files: dict[str, str]) -> str:
    """One digest over paths and digests of files."""
    return sha256_json(files)


__all__ = ["REGULAR", "Change", "Store", "digests", "git", "tree_digest", "unlock"]
