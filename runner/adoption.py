"""What lets a report be adopted. The same rules hold when a person signs and whenever the canon is read."""

from __future__ import annotations

from runner.assurance import NEEDED, claims
from runner.attest.statement import Signed, moment
from runner.judge import withdrawals
from runner.ledger import Ledger
from runner.model.adoption import Adoption, Observation, Revocation, Waiver
from runner.model.report import ReportPredicate
from runner.model.verdict import Status


def revoked(ledger: Ledger) -> set[str]:
    """Digests of decisions that were taken back."""
    return {revocation.revokes for _, revocation in ledger.of(Revocation)}


def waivers_for(ledger: Ledger, report: str) -> list[tuple[Signed, Waiver]]:
    """Waivers of one report that were not taken back, oldest first."""
    gone = revoked(ledger)
    return [
        (entry, each) for entry, each in ledger.of(Waiver) if each.report.digest == report and entry.digest not in gone
    ]


def _label_objections(report: ReportPredicate, adoption: Adoption, ledger: Ledger) -> list[str]:
    found = []
    label, seat = report.seat.label, report.seat.name
    if label == "none":
        found.append("no engine answered, so nothing was measured")
    if label == "simulated":
        found.append("it was measured on a simulated seat")
    if label == "attached" and adoption.scope != "descriptive":
        found.append("it was measured on an attached server, which can only be adopted as descriptive")
    if adoption.seat != seat:
        found.append(f"it was measured on {seat}, not on {adoption.seat}")
    if report.seat.isolation == "open" and adoption.scope != "descriptive":
        found.append("its candidate ran without a sandbox, so it can only be adopted as descriptive")
    if label == "cpu" and "real" in ledger.labels.get(adoption.seat, ()):
        found.append(f"it was measured on a CPU and {adoption.seat} is a GPU seat")
    return found


def _gate_objections(report: ReportPredicate, waived: dict[str, str]) -> list[str]:
    """``waived`` is gate name to the instant at which its waiver ends; the report's own time is no matter here."""
    return [
        f"gate {gate.name} is {gate.verdict}"
        for gate in report.gates
        if gate.verdict is not Status.PASS and gate.name not in waived
    ]


def objections(entry: Signed, adoption: Adoption, adopters: set[str], ledger: Ledger) -> tuple[str, ...]:
    """Why the report ``entry`` cannot be adopted by ``adoption`` as of its time; empty where it can.

    ``adopters`` are the key ids that sign the adoption.
    """
    report, where = entry.of(ReportPredicate), entry.where
    at = moment(adoption.created_at, where)
    found = _label_objections(report, adoption, ledger)
    if adopters & {signer.key.id for signer in entry.signers}:
        found.append("the key that signed the report cannot adopt it")
    if any(signer.source != "repository" for signer in entry.signers):
        found.append("only this user trusts the report's key: it must stand in canon/allowed_signers")
    if at < entry.at:
        found.append("the adoption is older than the report")
    if any(parent in ledger.entries and ledger.entries[parent].at > at for parent in adoption.parents):
        # A key that has expired could speak again by writing an earlier time.
        found.append("the adoption bears an earlier time than what it saw")
    waived = {}
    for waiver_entry, waiver in waivers_for(ledger, entry.digest):
        if waiver_entry.digest not in adoption.waivers:
            continue
        if {signer.key.id for signer in waiver_entry.signers} & {signer.key.id for signer in entry.signers}:
            found.append(f"the waiver of {waiver.gate} is by the key that signed the report")
        if at > moment(waiver.expires_at, where):
            found.append(f"the waiver of {waiver.gate} expired on {waiver.expires_at}")
        waived[waiver.gate] = waiver.expires_at
    found += _gate_objections(report, waived)
    if claims((gate.name, gate.verdict) for gate in report.gates) and len(report.assurance) < NEEDED:
        stood = ", ".join(report.assurance) or "none"
        found.append(f"{NEEDED} witnesses from outside the engine are needed; {stood} stood")
    if not report.gates:
        found.append("no gate judged it")
    found += [f"{grader} was withdrawn ({reason})" for grader, reason in withdrawals(report).items()]
    return tuple(found)


def stale(entry: Signed, ledger: Ledger) -> tuple[str, ...]:
    """Subjects that the seat's newest observation shows changed since the report, by name."""
    report = entry.of(ReportPredicate)
    seen = [(other.at, each.subjects) for other, each in ledger.of(Observation) if each.seat == report.seat.name]
    if not seen or seen[-1][0] <= entry.at:
        return ()
    now = seen[-1][1]
    return tuple(name for name in sorted(entry.subjects) if now.get(name, entry.subjects[name]) != entry.subjects[name])


__all__ = ["objections", "revoked", "stale", "waivers_for"]
