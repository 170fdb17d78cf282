"""Reports of a workspace and what became of them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

from runner.adoption import revoked
from runner.counts import refusals
from runner.decisions import decisions, in_force
from runner.errors import InputError
from runner.ledger import Ledger
from runner.model.adoption import Adoption
from runner.model.base import Record
from runner.model.report import ReportPredicate
from runner.report import REPORT
from runner.trees import walk

State = Literal["pending", "adopted", "rejected", "revoked", "refused", "abandoned", "running"]
"""``refused``: `verify` does not accept it, so it counts for nothing; ``revoked``: a decision was taken back and no
other stands."""


class Listed(Record):
    """One report, or one intent without a report."""

    order: str
    run: str
    seat: str
    verdict: str
    state: State
    tries: int
    reason: str
    digest: str


def _states(ledger: Ledger) -> dict[str, tuple[State, str]]:
    """Report digest to what holds for it and why: as in the canon, what does not count decides nothing."""
    gone, made = revoked(ledger), decisions(ledger)
    taken_back = {each.report.digest: each.reason for entry, each in ledger.of(Adoption) if entry.digest in gone}
    found: dict[str, tuple[State, str]] = {digest: ("revoked", reason) for digest, reason in taken_back.items()}
    for each in made:
        if each.against:
            found[each.entry.digest] = ("pending", f"{each.by}'s decision does not count: {'; '.join(each.against)}")
    for each in in_force(made):
        found[each.entry.digest] = ("adopted" if each.adopted else "rejected", each.adoption.reason)
    return found


def list_reports(ledger: Ledger) -> list[Listed]:
    """Reports, then abandoned intents, each oldest first."""
    states, reports = _states(ledger), ledger.of(ReportPredicate)
    refused = refusals((entry for entry, _ in reports), ledger)
    found = []
    for entry, report in reports:
        state, reason = states.get(entry.digest, ("pending", ""))
        if entry.digest in refused:
            state, reason = "refused", refused[entry.digest]
        found.append(
            Listed(
                order=report.order.name,
                run=report.run,
                seat=f"{report.seat.name} ({report.seat.label})",
                verdict=report.verdict,
                state=state,
                tries=ledger.tries.get(report.plan.intent, 1),
                reason=reason,
                digest=entry.digest,
            )
        )
    for entry, intent in ledger.abandoned():
        found.append(
            Listed(
                order=intent.order,
                run=intent.run,
                seat="",
                verdict="ABANDONED",
                state="abandoned",
                tries=ledger.tries[entry.digest],
                reason="",
                digest=entry.digest,
            )
        )
    return found


def expand(paths: Iterable[Path]) -> Iterator[Path]:
    """Every report at or under ``paths``, as the ledger finds them: hidden folders hold drafts, links lead elsewhere.

    A link to a folder under ``paths``, and a folder too deep to be entered, are given out as if they were reports, so
    that their reader can refuse them. Raises InputError for a path without any.
    """
    for path in paths:
        inside = [path] if path.is_file() or os.path.lexists(path / REPORT) else sorted(_below(path))
        if not inside:
            raise InputError(
                "no report here",
                where=str(path),
                expected=f"{REPORT} in it or in a folder under it",
                found="a folder without any" if path.is_dir() else "nothing" if not os.path.lexists(path) else "a file",
                next_step="`runner reports` lists the reports of a workspace",
            )
        yield from inside


def _below(folder: Path) -> Iterator[Path]:
    for path in walk(folder, lambda inner: not inner.name.startswith(".")):
        if path.name == REPORT or (path.is_dir() and not path.name.startswith(".")):
            yield path


__all__ = ["Listed", "expand", "list_reports"]
