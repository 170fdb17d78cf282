"""Reports of a workspace and what became of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

from runner.adoption import revoked
from runner.errors import InputError
from runner.ledger import Ledger
from runner.model.adoption import Adoption
from runner.model.base import Record
from runner.model.report import ReportPredicate
from runner.report import REPORT

State = Literal["pending", "adopted", "rejected", "revoked", "abandoned", "running"]


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
    """Report digest to its newest decision and that one's reason."""
    gone, found = revoked(ledger), dict[str, tuple[State, str]]()
    for entry, adoption in ledger.of(Adoption):
        if entry.digest in gone:
            found.setdefault(adoption.report.digest, ("revoked", adoption.reason))
        else:
            state: State = "adopted" if adoption.result == "ADOPTED" else "rejected"
            found[adoption.report.digest] = (state, adoption.reason)
    return found


def list_reports(ledger: Ledger) -> list[Listed]:
    """Reports, then abandoned intents, each oldest first."""
    states = _states(ledger)
    found = []
    for entry, report in ledger.of(ReportPredicate):
        state, reason = states.get(entry.digest, ("pending", ""))
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
    """Every report at or under ``paths``. Raises InputError for a path without any."""
    for path in paths:
        inside = [path] if path.is_file() or (path / REPORT).is_file() else sorted(path.rglob(REPORT))
        if not inside:
            raise InputError("no report here", where=str(path), expected=f"{REPORT} in it or in a folder under it")
        yield from inside


__all__ = ["Listed", "expand", "list_reports"]
