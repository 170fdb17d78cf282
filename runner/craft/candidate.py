"""A frozen candidate brought into a run: its allowed files, and nothing else of its commit."""

from __future__ import annotations

from pathlib import Path

from runner.craft.bench import CANDIDATE, Bench
from runner.craft.store import Store, digests, tree_digest
from runner.craft.taken import FILE, FOLDER, read_candidate
from runner.digest import canonical_json
from runner.errors import InputError, TrustError
from runner.files import write_whole
from runner.model.attempt import Attempt, History
from runner.model.order import KernelOrder, OrderFile, PatchOrder, files_of


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


def take(path: Path, file: OrderFile, run_folder: Path) -> None:
    """Check ``candidate.json`` against the order and bring its files into the run's folder.

    Raises InputError for a candidate of another order or text, or one that changes more than it may; TrustError where
    the frozen commit does not hold what was frozen.
    """
    candidate = read_candidate(path)
    if (candidate.history.order, candidate.history.order_digest) != (file.order.id, file.digest):
        raise InputError(
            "the candidate was made for another order, or for another text of it",
            where=str(path),
            expected=f"{file.order.id} with sha256 {file.digest}",
            found=f"{candidate.history.order} with sha256 {candidate.history.order_digest}",
            next_step="dispatch the order as it stands now",
        )
    if not candidate.history.attempts:
        raise InputError("the candidate tells of no attempt", where=str(path), expected="the one that made it")
    store = Store(Path(candidate.store))
    files = store.files(candidate.base, candidate.commit, allowed_files(file))
    last = candidate.history.attempts[-1]
    found = (candidate.commit, digests(files), tree_digest(digests(files)))
    if found != (last.commit, candidate.files, candidate.tree) or candidate.tree != last.tree:
        raise TrustError(
            "the frozen commit is not what was frozen", where=str(path), expected=str(last.tree), found=found[2]
        )
    if not store.rewrites(candidate.base, candidate.commit):
        raise InputError(
            "the candidate changes nothing: what would be judged is not its work",
            where=str(path),
            expected="a file whose bytes differ from the base",
            found=f"commit {candidate.commit} with the bytes of {candidate.base}",
            next_step="dispatch the order again",
        )
    candidate = candidate.model_copy(update={"history": _confirmed(candidate.history, Bench.of(file), path)})
    for name, data in files.items():
        write_whole(run_folder / FOLDER / name, data)
    write_whole(run_folder / FILE, canonical_json(candidate.model_dump(mode="json")))


def _confirmed(told: History, bench: Bench, path: Path) -> History:
    """The history as the order's own bench has it; where this user has none, the same, called unproven.

    What was judged meanwhile, or does not build, may have become known of its last attempt since it was frozen.
    Raises TrustError where the bench knows another one.
    """
    known = bench.attempts()
    if not known:
        return told.model_copy(
            update={"unproven": "its bench is not here, so nothing but the candidate's file says it"}
        )
    same = known[: len(told.attempts)]
    frozen = [list(map(_frozen, attempts)) for attempts in (told.attempts, same)]
    if frozen[0] == frozen[1] and told.attempts[:-1] == same[:-1]:
        return told.model_copy(update={"unproven": ""})
    differs = [str(one.number) for one, other in zip(*frozen, strict=False) if one != other]
    raise TrustError(
        "the candidate's history is not the one that its bench has",
        where=str(path),
        expected=f"attempts as in {bench.folder / 'attempts'}",
        found=f"another attempt {', '.join(differs)}" if differs else "more attempts, or other verdicts on them",
        next_step=f"use {bench.folder / CANDIDATE} as `dispatch` left it, or dispatch the order again",
    )


def _frozen(attempt: Attempt) -> Attempt:
    """What was known of it when its commit was frozen."""
    return attempt.model_copy(update={"judged": None, "findings": ()})


__all__ = ["allowed_files", "take"]
