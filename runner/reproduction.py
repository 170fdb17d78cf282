"""Who ran a report's sealed plan again with a new seed, and whether it came out the same.

A report is *self-attested* until somebody else's key signs a second one: the same plan apart from the seed, and the
same verdict of every gate.
"""

from __future__ import annotations

from dataclasses import dataclass

from runner.attest.statement import Signed
from runner.counts import refusals
from runner.digest import sha256_json
from runner.ledger import Ledger
from runner.model.adoption import Reproduction
from runner.model.plan import Plan
from runner.model.report import Measured, ReportPredicate


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
    """What other keys found, oldest first.

    A statement counts where its key is none of those that signed the report, signed the second report too, and both
    reports verify, are in the ledger under the names it gives them, have the plan it names, and are two measurements.
    """
    report, own = entry.of(ReportPredicate), {signer.key.id for signer in entry.signers}
    found = []
    for signed, claim in ledger.of(Reproduction):
        again = ledger.entries.get(claim.again.digest)
        keys = {signer.key.id for signer in signed.signers}
        if claim.report.digest != entry.digest or again is None or not isinstance(again.predicate, ReportPredicate):
            continue
        if keys & own or not keys <= {signer.key.id for signer in again.signers}:
            continue
        names = [(claim.report, report), (claim.again, again.predicate)]
        if any((name.run, name.order) != (each.run, each.order.name) for name, each in names):
            continue
        if refusals([entry, again], ledger):
            continue
        first, second = ledger.measured(entry), ledger.measured(again)
        if not shape(first.plan) == shape(second.plan) == claim.plan:
            continue
        if not _measured_anew(again, again.predicate, ledger) or _copied(report, again.predicate):
            continue
        if _evidence(first) & _evidence(second):
            continue
        agrees = _verdicts(report) == _verdicts(again.predicate)
        by = ", ".join(signer.principal for signer in signed.signers)
        found.append(Reproduced(by, again.predicate.run, agrees))
    return tuple(found)


def assurance_level(entry: Signed, ledger: Ledger) -> str:
    """``self-attested``, or who reproduced or contradicted it."""
    return "; ".join(map(str, reproductions(entry, ledger))) or "self-attested"


def _copied(one: ReportPredicate, other: ReportPredicate) -> bool:
    """The same run, the same seed or the same evidence under two signatures: nothing was measured a second time."""
    kept = one.evidence.archive
    same_evidence = kept is not None and kept == other.evidence.archive
    return one.run == other.run or one.plan.seed_commitment == other.plan.seed_commitment or same_evidence


def _measured_anew(entry: Signed, report: ReportPredicate, ledger: Ledger) -> bool:
    """The report is no copy of an older one, whoever signed that."""
    older = [each for other, each in ledger.of(ReportPredicate) if (other.at, other.digest) < (entry.at, entry.digest)]
    return not any(_copied(each, report) for each in older)


def _evidence(measured: Measured) -> set[str]:
    """Digests of all evidence that was read: it bears its time, so that no two runs have any in common."""
    return {digest for sample in measured.samples for digest in sample.evidence}


def _verdicts(report: ReportPredicate) -> dict[str, str]:
    return {f"{gate.name}@{gate.version}": gate.verdict for gate in report.gates}


__all__ = ["Reproduced", "assurance_level", "common", "reproductions", "shape"]
