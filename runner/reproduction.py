"""Who ran a report's sealed plan again with a new seed, and whether it came out the same.

A report is *self-attested* until somebody else's key signs a second one: the same plan apart from the seed, and the
same verdict of every gate.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from runner.attest.statement import Signed
from runner.counts import refusals
from runner.digest import sha256_json
from runner.ledger import Ledger
from runner.model.adoption import Reproduction
from runner.model.plan import Plan
from runner.model.report import Measured, ReportPredicate
from runner.model.verdict import Status


@dataclass(frozen=True)
class Reproduced:
    """One run of the same plan by another key."""

    by: str
    run: str
    agrees: bool
    """Every gate said the same."""

    def __str__(self) -> str:
        return f"{'reproduced' if self.agrees else 'contradicted'} by {self.by} in run {self.run}"


NO_SEED = "0" * 64
"""Stands for the seed's commitment where plans of several seeds are compared."""
_BUILT_ANEW = ("library.", "witness.library")
"""Subjects that each machine compiles for itself; the digests of their sources stay among the others."""


def common(plan: Plan) -> Plan:
    """The part of a plan that two runs of it share: no seed, and no digest of what each machine compiles itself."""
    subjects = {name: digest for name, digest in plan.subjects.items() if not name.startswith(_BUILT_ANEW)}
    return plan.model_copy(update={"seed_commitment": NO_SEED, "subjects": subjects})


def shape(plan: Plan) -> str:
    """Digest of :func:`common`."""
    return sha256_json(common(plan).model_dump(mode="json"))


def reproductions(entry: Signed, ledger: Ledger) -> tuple[Reproduced, ...]:
    """What other keys found, oldest first; those that nobody claims are last.

    A statement counts where its key is none of those that signed the report, signed the second report too, and both
    reports verify, are in the ledger under the names it gives them, have the plan it names, and are two measurements.
    A report of that kind in which a gate failed that passed here counts without a statement: whoever runs a plan
    several times cannot choose which of the runs was the reproduction. It also counts where it is another's copy: what
    failed stays failed, and nobody takes it away by a third report that looks older.
    """
    report, found = entry.of(ReportPredicate), dict[str, Reproduced]()
    for signed, claim in ledger.of(Reproduction):
        again = ledger.entries.get(claim.again.digest)
        if claim.report.digest != entry.digest or again is None or not isinstance(again.predicate, ReportPredicate):
            continue
        if signed.keys & entry.keys or not signed.keys <= again.keys:
            continue
        names = [(claim.report, report), (claim.again, again.predicate)]
        if any((name.run, name.order) != (each.run, each.order.name) for name, each in names):
            continue
        if _second_measurement(entry, again, ledger) == claim.plan:
            found[again.digest] = _reproduced(signed, report, again.predicate)
    for again, other in ledger.of(ReportPredicate):
        if again.digest in found or again.keys & entry.keys or _age(again, ledger) < _age(entry, ledger):
            continue
        if not _fails_anew(report, other):
            continue
        if _second_measurement(entry, again, ledger):
            found[again.digest] = _reproduced(again, report, other)
    return tuple(found.values())


def _reproduced(signed: Signed, report: ReportPredicate, again: ReportPredicate) -> Reproduced:
    by = ", ".join(signer.principal for signer in signed.signers)
    return Reproduced(by, again.run, _verdicts(report) == _verdicts(again))


def _fails_anew(report: ReportPredicate, again: ReportPredicate) -> bool:
    """Whether the same order on the same seat failed a gate that passed in the report."""
    if (report.order.digest, report.seat.digest) != (again.order.digest, again.seat.digest):
        return False
    before, now = _verdicts(report), _verdicts(again)
    return any(before.get(gate) == Status.PASS and verdict == Status.FAIL for gate, verdict in now.items())


def _second_measurement(entry: Signed, again: Signed, ledger: Ledger) -> str:
    """The plan that two reports share; empty where one does not verify or they are not two measurements of one plan."""
    report, other = entry.of(ReportPredicate), again.of(ReportPredicate)
    if refusals([entry, again], ledger):
        return ""
    first, second = ledger.measured(entry), ledger.measured(again)
    if (plan := shape(first.plan)) != shape(second.plan):
        return ""
    if _copied(report, other) or _evidence(first) & _evidence(second):
        return ""
    return plan if _fails_anew(report, other) or _measured_anew(again, other, ledger) else ""


def assurance_level(entry: Signed, ledger: Ledger) -> str:
    """``self-attested``, or who reproduced or contradicted it."""
    return "; ".join(map(str, reproductions(entry, ledger))) or "self-attested"


def _copied(one: ReportPredicate, other: ReportPredicate) -> bool:
    """The same run, the same seed or the same evidence under two signatures: nothing was measured a second time."""
    kept = one.evidence.archive
    same_evidence = kept is not None and kept == other.evidence.archive
    return one.run == other.run or one.plan.seed_commitment == other.plan.seed_commitment or same_evidence


def _measured_anew(entry: Signed, report: ReportPredicate, ledger: Ledger) -> bool:
    """The report is no copy of an older one that counts, whoever signed that."""
    before = [(other, each) for other, each in ledger.of(ReportPredicate) if _age(other, ledger) < _age(entry, ledger)]
    copies = [other for other, each in before if _copied(each, report)]
    return len(refusals(copies, ledger)) == len(copies)


def _age(entry: Signed, ledger: Ledger) -> tuple[datetime, str]:
    """By when a report was there."""
    return ledger.lineage.made[entry.digest], entry.digest


def _evidence(measured: Measured) -> set[str]:
    """Digests of all evidence that was read: it bears its time, so that no two runs have any in common."""
    return {digest for sample in measured.samples for digest in sample.evidence}


def _verdicts(report: ReportPredicate) -> dict[str, str]:
    return {f"{gate.name}@{gate.version}": gate.verdict for gate in report.gates}


__all__ = ["Reproduced", "assurance_level", "common", "reproductions", "shape"]
