"""Many reports at once: each is verified on its own, and one that is refused stops no other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from runner import many
from runner.attest.dsse import UnknownKeyError
from runner.errors import CarveError, InputError
from runner.listing import expand
from runner.paths import named_workspace
from runner.roots import forget, root_of
from runner.verify import Verification, verify


@dataclass(frozen=True)
class Question:
    """One report and how to look at it."""

    path: Path
    workspace: Path | None
    """The workspace whose signers count and whose ledger has the intent; None for the one that one stands in."""
    signers: Path | None
    """Trust this file and no other."""
    deep: bool
    runs: Path | None = None
    """Where run folders lie with their full evidence."""


Answer = Verification | CarveError


def ask(question: Question) -> Answer:
    """Verify one report; what refuses it is an answer too."""
    try:
        root = root_of(question.path, named=question.workspace, signers=question.signers)
        try:
            return verify(question.path, root.trust, root.ledger, deep=question.deep, runs=question.runs)
        except UnknownKeyError as error:
            return root.hint(error, question.path)
    except CarveError as error:
        return error


def verify_many(
    paths: Sequence[Path],
    workspace: Path | None = None,
    *,
    signers: Path | None = None,
    deep: bool = False,
    runs: Path | None = None,
) -> Iterator[tuple[Path, Answer]]:
    """Every report at or under ``paths`` with its answer, in order; on all processors where there are many.

    Raises InputError for a path without any report, a file of signers that cannot be read or a workspace that is none.
    """
    if workspace is not None:
        workspace = named_workspace(workspace, "--workspace")
    if signers is not None and not signers.is_file():
        raise InputError("no file of signers", where=str(signers), expected="an allowed_signers file", found="no file")
    forget()
    questions = [Question(path, workspace, signers, deep, runs) for path in expand(paths)]
    yield from zip((question.path for question in questions), many.each(ask, questions), strict=True)


__all__ = ["Answer", "Question", "ask", "verify_many"]
