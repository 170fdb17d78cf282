"""Many reports at once: each is verified on its own, and one that is refused stops no other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from runner import many
from runner.attest.trust import Trust, load_trust, read_signers_file
from runner.errors import CarveError, InputError
from runner.listing import expand
from runner.paths import workspace as workspace_of
from runner.verify import Verification, verify


@dataclass(frozen=True)
class Question:
    """One report and how to look at it."""

    path: Path
    workspace: Path | None
    """The workspace whose ledger has the intent; None looks above the report, then above the present folder."""
    signers: Path | None
    """Trust this file and no other."""
    deep: bool


Answer = Verification | CarveError


@cache
def _trust(workspace: Path | None, signers: Path | None) -> Trust:
    if signers is None:
        return load_trust(workspace)
    return Trust(read_signers_file(signers, "user"))


@cache
def _found_workspace(start: Path | None) -> Path | None:
    try:
        return workspace_of(start)
    except InputError:
        return None


def ask(question: Question) -> Answer:
    """Verify one report; what refuses it is an answer too."""
    above = question.path if question.path.is_dir() else question.path.parent
    here = question.workspace or _found_workspace(above.parent) or _found_workspace(None)
    try:
        return verify(question.path, _trust(here, question.signers), here, deep=question.deep)
    except CarveError as error:
        return error


def verify_many(
    paths: Sequence[Path], workspace: Path | None = None, *, signers: Path | None = None, deep: bool = False
) -> Iterator[tuple[Path, Answer]]:
    """Every report at or under ``paths`` with its answer, in order; on all processors where there are many.

    Raises InputError for a path without any report or a file of signers that cannot be read.
    """
    if signers is not None and not signers.is_file():
        raise InputError("no file of signers", where=str(signers), expected="an allowed_signers file", found="no file")
    _trust.cache_clear()
    _found_workspace.cache_clear()
    questions = [Question(path, workspace, signers, deep) for path in expand(paths)]
    yield from zip((question.path for question in questions), many.each(ask, questions), strict=True)


__all__ = ["Answer", "Question", "ask", "verify_many"]
