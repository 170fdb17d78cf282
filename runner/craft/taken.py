"""A frozen candidate that a run was started with, laid over this checkout's own sources. No git is needed for it."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pydantic import ValidationError

from runner.craft.bench import Bench
from runner.digest import sha256_json
from runner.errors import CarveError, InputError
from runner.model.attempt import CandidateFile, Finding
from runner.paths import source_root
from runner.steps.journal import Journal
from runner.visible import shortened

FOLDER = "candidate"
FILE = "candidate.json"
REFUSED = "refused"
"""Event of a run that ended without a report: its candidate cannot be built, so there is nothing to judge."""


class CandidateError(InputError):
    """A frozen candidate that cannot be built."""


@contextmanager
def refusable(run_folder: Path, journal: Journal) -> Iterator[None]:
    """Where an InputError inside is a frozen candidate's own fault, it is recorded and raised as CandidateError."""
    try:
        yield
    except InputError as error:
        if taken(run_folder) is None:
            raise
        journal.write(REFUSED, verdict="does not build")
        raise _refuse(run_folder, error) from error


def _refuse(run_folder: Path, error: CarveError) -> CandidateError:
    """Record at the bench that the run's candidate cannot be built; the error that ends the run."""
    candidate = read_candidate(run_folder / FILE)
    history = candidate.history
    bench = Bench.named(history.order, history.order_digest)
    expected = f"; expected {error.expected}" if error.expected else ""
    said = f"{error.what} ({error.where}): {error.found}{expected}"
    detail = shortened(said.replace(f"{run_folder}/", ""))  # a report names no path of a machine
    for attempt in bench.attempts():
        if attempt.commit == candidate.commit and attempt.waits:
            bench.keep(attempt.model_copy(update={"findings": (Finding(kind="does-not-build", detail=detail),)}))
    return CandidateError(
        "the candidate cannot be built",
        where=error.where,
        expected=error.expected,
        found=error.found,
        next_step="dispatch the order again: the next brief holds these words",
    )


LARGEST = 16 << 20
"""Bytes of a candidate file; a real one has some thousand."""


def read_candidate(path: Path) -> CandidateFile:
    """``candidate.json``. Raises InputError where it is none."""
    try:
        size = path.stat().st_size
        if not path.is_file() or size > LARGEST:
            raise InputError(
                "not a candidate file",
                where=str(path),
                expected=f"a plain file of at most {LARGEST} bytes",
                found=f"{size} bytes" if path.is_file() else "something else",
            )
        return CandidateFile.model_validate_json(path.read_bytes())
    except OSError as error:
        raise InputError("no candidate to read", where=str(path), found=error.strerror or str(error)) from error
    except ValidationError as error:
        fault = error.errors()[0]
        raise InputError(
            "not a candidate file", where=f"{path}: {'.'.join(map(str, fault['loc']))}", found=fault["msg"]
        ) from error


def taken(run_folder: Path) -> CandidateFile | None:
    """The candidate a run was started with."""
    path = run_folder / FILE
    return read_candidate(path) if path.is_file() else None


def subjects(run_folder: Path) -> dict[str, str]:
    """Digests by subject name: the candidate's files and the history that led to them; none without a candidate."""
    candidate = taken(run_folder)
    if candidate is None:
        return {}
    return {
        "candidate.tree": candidate.tree,
        "craft.history": sha256_json(candidate.history.model_dump(mode="json")),
    }


def laid_over(run_folder: Path, sources: Path) -> Path:
    """A copy of the checkout's folder ``sources`` in the run's folder with the candidate's files in it."""
    inside = sources.relative_to(source_root())
    target = run_folder / "sources" / inside
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(sources, target)
    candidate = run_folder / FOLDER / inside
    if candidate.is_dir():
        shutil.copytree(candidate, target, dirs_exist_ok=True)
    return target


def toy(run_folder: Path, sources: Sequence[str], known: Collection[str]) -> str:
    """The fake seat's 'library': the first word of the candidate's source says which toy it plays; empty for none.

    Raises InputError for any other first word, which is what does not compile there.
    """
    path = next((path for name in sources if (path := run_folder / FOLDER / name).is_file()), None)
    if path is None:
        return ""
    words = path.read_text(errors="replace").split()
    if not words or words[0] not in known:
        raise InputError(
            "a simulated seat compiles nothing: the first word of the source says which toy it plays",
            where=path.name,
            expected=f"one of {', '.join(known)}",
            found=words[0] if words else "an empty file",
            next_step="a kernel that computes needs a seat with an engine, for example cpu-mini",
        )
    return words[0]


__all__ = [
    "FILE",
    "FOLDER",
    "REFUSED",
    "CandidateError",
    "laid_over",
    "read_candidate",
    "refusable",
    "subjects",
    "taken",
    "toy",
]
