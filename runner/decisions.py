"""What people have decided, and what of it stands. The canon, the list of reports and the cards all ask here."""

from __future__ import annotations

from dataclasses import dataclass, replace

from runner.adoption import fault_of, objections, revoked
from runner.attest.statement import Signed
from runner.counts import refusals
from runner.ledger import Ledger
from runner.markdown import run_link
from runner.model.adoption import Adoption
from runner.model.report import ReportPredicate


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


def current(made: list[Decided], scope: str) -> list[Decided]:
    """Of adoptions in force the newest for each order on each seat, newest first."""
    adopted = [each for each in in_force(made) if each.adopted and each.adoption.scope == scope]
    latest = {(each.report.order.name, each.report.seat.name): each for each in adopted}
    return [each for each in reversed(adopted) if latest[each.report.order.name, each.report.seat.name] is each]


def standing(ledger: Ledger) -> list[Decided]:
    """What stands, newest first; what was adopted as descriptive never does."""
    return current(decisions(ledger), "standing")


def stands_instead(ledger: Ledger, adoption: str) -> Decided | None:
    """What stands for the order and seat of an adoption (by its digest), or would if that one were taken back."""
    given_back = ledger.entries[adoption].of(Adoption)
    without = replace(ledger, entries={digest: each for digest, each in ledger.entries.items() if digest != adoption})
    fitting = [each for each in standing(without) if each.report.seat.name == given_back.seat]
    return next((each for each in fitting if each.report.order.name == given_back.report.order), None)


__all__ = ["Decided", "current", "decisions", "in_force", "standing", "stands_instead"]
