"""What people have decided, and what of it stands. The canon, the list of reports and the cards all ask here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from runner.adoption import fault_of, objections, revoked
from runner.attest.statement import Signed
from runner.counts import refusals
from runner.ledger import Ledger
from runner.markdown import run_link
from runner.model.adoption import Adoption
from runner.model.report import ReportPredicate

Scope = Literal["standing", "descriptive"]


@dataclass(frozen=True)
class Decided:
    """A decision about a report."""

    entry: Signed
    """The report's."""
    report: ReportPredicate
    signed: Signed
    """The decision's."""
    adoption: Adoption
    against: tuple[str, ...]
    """Why the decision does not count; empty where it does."""

    @property
    def by(self) -> str:
        """Who decided."""
        return ", ".join(signer.principal for signer in self.signed.signers)

    @property
    def link(self) -> str:
        """The run, as a link to its report from ``canon/``."""
        return run_link(self.report.order.name, self.report.run)

    @property
    def adopted(self) -> bool:
        """Whether it takes the report into the canon, or declines to."""
        return self.adoption.result == "ADOPTED"


def decisions(ledger: Ledger) -> list[Decided]:
    """Every adoption and rejection that was not taken back, oldest first; of reports whose key is trusted here.

    Raises TrustError for one about another kind of statement.
    """
    gone = revoked(ledger)
    made = [
        (ledger.entries[each.report.digest], signed, each)
        for signed, each in ledger.of(Adoption)
        if signed.digest not in gone and each.report.digest in ledger.entries
    ]
    refusals([entry for entry, _, each in made if each.result == "ADOPTED"], ledger)  # at once, on every processor
    return [
        Decided(entry, entry.of(ReportPredicate), signed, each, _against(entry, signed, each, ledger))
        for entry, signed, each in made
    ]


def _against(entry: Signed, signed: Signed, made: Adoption, ledger: Ledger) -> tuple[str, ...]:
    if made.result == "ADOPTED":
        return objections(entry, made, signed.keys, ledger)
    fault = fault_of(made, ledger)
    return (f"the rejection {fault}",) if fault else ()


def in_force(made: list[Decided]) -> list[Decided]:
    """Of those that count what holds for each report, oldest first: its rejection, or its adoption in each scope."""
    holds: dict[tuple[str, str], Decided] = {}
    for each in made:
        if each.against:
            continue
        scopes = ("standing", "descriptive", "rejected")
        for scope in (each.adoption.scope, "rejected") if each.adopted else scopes:
            holds.pop((each.entry.digest, scope), None)  # what is decided again takes its place anew
        holds[each.entry.digest, each.adoption.scope if each.adopted else "rejected"] = each
    return list(holds.values())


def current(made: list[Decided], scope: Scope) -> list[Decided]:
    """Of adoptions in force the newest of each place, newest first.

    A seat is launched in one way, so one adoption stands on it, whatever its order; figures are kept for each order.
    """
    adopted = [each for each in in_force(made) if each.adopted and each.adoption.scope == scope]
    latest = {_place(each, scope): each for each in adopted}
    return [each for each in reversed(adopted) if latest[_place(each, scope)] is each]


def _place(each: Decided, scope: Scope) -> tuple[str, str]:
    """What one adoption of a scope holds, and the next takes from it."""
    return "" if scope == "standing" else each.report.order.name, each.report.seat.name


def displaced(made: list[Decided], stands: Decided) -> Decided | None:
    """What stood on the seat before; None where nothing did, or nothing that is still in force."""
    on_seat = [each for each in in_force(made) if each.adopted and each.adoption.scope == "standing"]
    before = [each for each in on_seat if each.report.seat.name == stands.report.seat.name]
    at = next((number for number, each in enumerate(before) if each is stands), 0)
    return before[at - 1] if at else None


def standing(ledger: Ledger) -> list[Decided]:
    """What stands, newest first; what was adopted as descriptive never does."""
    return current(decisions(ledger), "standing")


def stands_instead(ledger: Ledger, adoption: str) -> Decided | None:
    """What stands on the seat of an adoption (by its digest), or would if that one were taken back."""
    given_back = ledger.entries[adoption].of(Adoption)
    left = [each for each in decisions(ledger) if each.adoption != given_back]
    return next((each for each in current(left, "standing") if each.report.seat.name == given_back.seat), None)


__all__ = ["Decided", "Scope", "current", "decisions", "displaced", "in_force", "standing", "stands_instead"]
