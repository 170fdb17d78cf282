"""A frozen candidate in a run: its allowed files, and nothing else of it, laid over this checkout's own sources."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pydantic import ValidationError

from runner.craft.bench import Bench
from runner.craft.retry import shortened
from runner.craft.store import Store, digests, tree_digest
from runner.digest import canonical_json, sha256_json
from runner.errors import CarveError, InputError, TrustError
from runner.files import write_whole
from runner.model.attempt import CandidateFile, Finding
from runner.model.order import KernelOrder, OrderFile, PatchOrder, files_of
from runner.paths import source_root
from runner.steps.journal import Journal

FOLDER = "candidate"
FILE = "candidate.json"
REFUSED = "refused"
"""Event of a run that ended without a report: its candidate cannot be built, so there is nothing to judge."""


class CandidateError(InputError):
    """A frozen candidate that cannot be built."""


def allowed_files(file: OrderFile) -> tuple[str, ...]:
    """The files that a craftsperson may touch for this order. Raises InputError where it names none."""
    order = file.order
    if allowed := files_of(order):
        return allowed
    if isinstance(order, KernelOrder | PatchOrder):
        place = "candidate" if isinstance(order, KernelOrder) else "scope"
        expected, found = f"{place}.files_allowed names the files that may be changed", "none"
        step = f"add {place}.files_allowed; without it what stands in the checkout is judged: runner execute"
    else:
        expected, found = "a kernel or patch order", f"an order of kind {order.kind}"
        step = "the runner makes and judges it from the order alone: runner execute"
    raise InputError(
        "nobody can be given this order", where=order.id, expected=expected, found=found, next_step=f"{step} ORDER"
    )


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


def take(path: Path, file: OrderFile, run_folder: Path) -> None:
    """Check ``candidate.json`` against the order and bring its files into the run's folder.

    Raises InputError for a candidate of another order or text, or one that changes more than it may; TrustError where
    the frozen commit does not hold what was frozen.
    """
    candidate = _read(path)
    if (candidate.history.order, candidate.history.order_digest) != (file.order.id, file.digest):
        raise InputError(
            "the candidate was made for another order, or for another text of it",
            where=str(path),
            expected=f"{file.order.id} with sha256 {file.digest}",
            found=f"{candidate.history.order} with sha256 {candidate.history.order_digest}",
            next_step="dispatch the order as it stands now",
        )
    files = Store(Path(candidate.store)).files(candidate.base, candidate.commit, allowed_files(file))
    last = candidate.history.attempts[-1]
    found = (candidate.commit, digests(files), tree_digest(digests(files)))
    if found != (last.commit, candidate.files, candidate.tree) or candidate.tree != last.tree:
        raise TrustError(
            "the frozen commit is not what was frozen", where=str(path), expected=str(last.tree), found=found[2]
        )
    for name, data in files.items():
        write_whole(run_folder / FOLDER / name, data)
    write_whole(run_folder / FILE, canonical_json(candidate.model_dump(mode="json")))


def _refuse(run_folder: Path, error: CarveError) -> CandidateError:
    """Record at the bench that the run's candidate cannot be built; the error that ends the run."""
    candidate = _read(run_folder / FILE)
    history = candidate.history
    bench = Bench.named(history.order, history.order_digest)
    said = f"{error.what} ({error.where}): {error.found}"
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


def _read(path: Path) -> CandidateFile:
    try:
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
    return _read(path) if path.is_file() else None


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


def toy(run_folder: Path, sources: Sequence[str]) -> str:
    """The fake seat's 'library': the first word of the candidate's source names which toy it is; empty for none.

    Raises InputError for a source without a word, which is what does not compile there.
    """
    path = next((path for name in sources if (path := run_folder / FOLDER / name).is_file()), None)
    if path is None:
        return ""
    words = path.read_text(errors="replace").split()
    if not words:
        raise InputError("the toy's source is empty", where=path.name, expected="the name of a toy", found="nothing")
    return words[0]


__all__ = [
    "REFUSED",
    "CandidateError",
    "allowed_files",
    "laid_over",
    "refusable",
    "subjects",
    "take",
    "taken",
    "toy",
]
