"""What lets a report be adopted. The same rules hold when a person signs and whenever the canon is read."""

from __future__ import annotations

from datetime import datetime, timedelta

from runner.assurance import NEEDED, claims
from runner.attest.statement import Signed, moment
from runner.counts import answered_as, refusal
from runner.gates.registry import waivable
from runner.judge import withdrawals
from runner.kill_lines import words_of
from runner.ledger import Ledger
from runner.lineage import dated_back
from runner.model.adoption import Adoption, Observation, ReportName, Revocation, Waiver
from runner.model.report import GatePart, ReportPredicate
from runner.model.verdict import Status
from runner.order_lines import lines_struck

LONGEST_WAIVER = timedelta(days=366)
"""What stands open for longer is no exception any more: whoever still means it after a year says so again."""


def fault_of(made: Adoption | Waiver | Revocation, ledger: Ledger) -> str:
    """Why a decision of any kind does not count whatever it says; empty where it may.

    A key that has expired could speak again by writing an earlier time.
    """
    newer = dated_back(made, ledger.lineage, ledger.entries)
    return f"bears an earlier time than what it saw: {newer}" if newer else ""


def clears_itself(revocation: Revocation, keys: set[str], ledger: Ledger) -> str:
    """Why a revocation by ``keys`` does not count: they signed the report that somebody else rejected; else empty.

    What one said oneself can be taken back, and so can any adoption: nobody gains by that.
    """
    taken_back = ledger.entries.get(revocation.revokes)
    if taken_back is None or not isinstance(made := taken_back.predicate, Adoption) or made.result != "REJECTED":
        return ""
    report = ledger.entries.get(made.report.digest)
    if report is None or keys & taken_back.keys:
        return ""
    own = keys & report.keys
    return "takes somebody's rejection of an own report back" if own else ""


def revoked(ledger: Ledger) -> set[str]:
    """Digests of decisions that were taken back, and of others that say word for word the same.

    Whoever leaves one of two signatures out has another file of the same statement.
    """
    named = {
        each.revokes
        for entry, each in ledger.of(Revocation)
        if not fault_of(each, ledger) and not clears_itself(each, entry.keys, ledger)
    }
    said = [ledger.entries[digest].predicate for digest in named if digest in ledger.entries]
    twins = (entry for each in said for entry in ledger.made_at[each.created_at] if entry.predicate == each)
    return named | {entry.digest for entry in twins}


def waivers_for(ledger: Ledger, report: str) -> list[tuple[Signed, Waiver]]:
    """Waivers of one report that count and were not taken back, oldest first; also those that are over."""
    gone = revoked(ledger)
    return [
        (entry, each)
        for entry, each in ledger.of(Waiver)
        if each.report.digest == report and entry.digest not in gone and not fault_of(each, ledger)
    ]


def over(waiver: Waiver, ledger: Ledger) -> bool:
    """Whether a waiver has ended by the time of the newest statement: what is read from a ledger has no other clock."""
    return moment(ledger.newest, "the newest statement") > moment(waiver.expires_at, "a waiver")


def endless(waiver: Waiver) -> bool:
    """Whether a waiver would stand for more than :data:`LONGEST_WAIVER` from when it was signed."""
    return moment(waiver.expires_at, "expiry") - moment(waiver.created_at, "a waiver") > LONGEST_WAIVER


def _label_objections(report: ReportPredicate, scope: str, ledger: Ledger) -> list[str]:
    found = []
    label, seat = report.seat.label, report.seat.name
    if label == "none":
        found.append("no engine answered, so nothing was measured")
    if label == "simulated":
        found.append("it was measured on a simulated seat")
    if label == "attached" and scope != "descriptive":
        found.append("it was measured on an attached server, which can only be adopted as descriptive")
    if report.seat.isolation == "open" and scope != "descriptive":
        found.append("its candidate ran without a sandbox, so it can only be adopted as descriptive")
    if scope != "descriptive":
        found += [
            f"kill line {words_of(line)} struck: the work is delivered switched off, so it can only be adopted as "
            "descriptive"
            for line in lines_struck(report)
            if line.action == "ship-off"
        ]
    cards = report.seat.manifest is not None and report.seat.manifest.get("machine") is not None
    if label == "cpu" and (cards or answered_as("real", seat, ledger)):
        found.append(f"it was measured on a CPU and {seat} is a GPU seat")
    return found


def _misnamed(name: ReportName, report: ReportPredicate) -> str:
    """What a decision calls its report, where that is not the report's own name; empty where it is."""
    if (name.run, name.order) == (report.run, report.order.name):
        return ""
    return f"names run {name.run} of order {name.order}, and this is run {report.run} of order {report.order.name}"


def may_waive(gate: GatePart) -> bool:
    """Whether a person may let this verdict stand open: a shortfall may, a missing proof or measurement not."""
    return gate.verdict not in (Status.PASS, Status.INVALID) and waivable(gate.name)


def _gate_objections(report: ReportPredicate, waived: set[str]) -> list[str]:
    """``waived`` are names of gates; a waiver of what nobody may waive lifts nothing."""
    found = []
    for gate in report.gates:
        if gate.verdict is Status.PASS or (gate.name in waived and may_waive(gate)):
            continue
        never = ", which nobody can waive" if gate.name in waived else ""
        found.append(f"gate {gate.name} is {gate.verdict}{never}")
    return found


def _rejections(entry: Signed, at: datetime, ledger: Ledger) -> list[str]:
    """Rejections of the report that were there at ``at``, whatever time they bear, and were never taken back."""
    gone, way = revoked(ledger), "`runner revoke {}` takes that back"
    return [
        f"{signed.signers[0].principal} rejected it ({each.reason}); {way.format(signed.digest[:16])}"
        for signed, each in ledger.of(Adoption)
        if each.result == "REJECTED"
        and each.report.digest == entry.digest
        and signed.digest not in gone
        and ledger.lineage.made[signed.digest] <= at
        and not fault_of(each, ledger)
    ]


def _waived(entry: Signed, adoption: Adoption, at: datetime, ledger: Ledger) -> tuple[set[str], list[str]]:
    """(gates that the adoption's waivers let stand open, what is wrong with those of gates that no other lets).

    A gate without a usable waiver is among the first where its waivers' faults are among the second.
    """
    report, own = entry.of(ReportPredicate), entry.keys
    standing = {signed.digest: (signed, each) for signed, each in waivers_for(ledger, entry.digest)}
    gate_of = {signed.digest: each.gate for signed, each in ledger.of(Waiver)}
    usable, faults = set[str](), list[tuple[str, str]]()
    for digest in adoption.waivers:
        if digest not in standing:
            faults.append((gate_of.get(digest, ""), f"it rests on waiver {digest[:16]}, which does not stand"))
            continue
        signed, waiver = standing[digest]
        found = []
        if signed.keys & own:
            found.append("is by the key that signed the report")
        if at > moment(waiver.expires_at, signed.where):
            found.append(f"expired on {waiver.expires_at}")
        elif over(waiver, ledger):
            found.append(f"was for a time that is over: it expired on {waiver.expires_at}")
        if endless(waiver):
            found.append(f"runs until {waiver.expires_at}, more than {LONGEST_WAIVER.days} days")
        if fault := _misnamed(waiver.report, report):
            found.append(fault)
        faults += [(waiver.gate, f"the waiver of {waiver.gate} {words}") for words in found]
        if not found:
            usable.add(waiver.gate)
    left = [(gate, words) for gate, words in faults if gate not in usable]
    blamed = {gate for gate, words in left if not words.startswith("it rests on")}
    return usable | blamed, [words for _, words in left]


def objections(entry: Signed, adoption: Adoption, adopters: set[str], ledger: Ledger) -> tuple[str, ...]:
    """Why the report ``entry`` cannot be adopted by ``adoption`` as of its time, or no longer; empty where it can.

    What a person let stand open until a moment blocks again once a statement is newer than that.

    ``adopters`` are the key ids that sign the adoption.
    """
    report, where = entry.of(ReportPredicate), entry.where
    at = moment(adoption.created_at, where)
    found = _label_objections(report, adoption.scope, ledger)
    if adoption.seat != report.seat.name:
        found.append(f"it was measured on {report.seat.name}, not on {adoption.seat}")
    if refused := refusal(entry, ledger):
        found.append(f"it does not verify: {refused}")
    if fault := _misnamed(adoption.report, report):
        found.append(f"the adoption {fault}")
    if adopters & entry.keys:
        found.append("the key that signed the report cannot adopt it")
    if any(signer.source != "repository" for signer in entry.signers):
        found.append("only this user trusts the report's key: it must stand in canon/allowed_signers")
    if at < ledger.lineage.made[entry.digest]:
        found.append("the adoption is older than the report")
    if fault := fault_of(adoption, ledger):
        found.append(f"the adoption {fault}")
    found += _rejections(entry, at, ledger)
    waived, faults = _waived(entry, adoption, at, ledger)
    found += faults
    return (*found, *_judged_objections(report, waived))


def _judged_objections(report: ReportPredicate, waived: set[str]) -> list[str]:
    """What speaks against a report by its verdicts, its witnesses and its graders."""
    found = _gate_objections(report, waived)
    if claims((gate.name, gate.verdict) for gate in report.gates) and len(report.assurance) < NEEDED:
        stood = ", ".join(report.assurance) or "none"
        found.append(f"{NEEDED} witnesses from outside the engine are needed; {stood} stood")
    if not report.gates:
        found.append("no gate judged it")
    return found + [f"{grader} was withdrawn ({reason})" for grader, reason in withdrawals(report).items()]


def hopeless(report: ReportPredicate, scope: str, ledger: Ledger) -> tuple[str, ...]:
    """Why nobody could adopt the report in ``scope`` without a waiver, whoever it was; empty where somebody could."""
    return (*_label_objections(report, scope, ledger), *_judged_objections(report, set()))


def stale(entry: Signed, ledger: Ledger) -> tuple[str, ...]:
    """Subjects that the seat's observations since the report show changed, by name.

    Of each subject the newest one that names it: what an observation leaves out it does not say to be as it was.
    """
    report = entry.of(ReportPredicate)
    made = ledger.lineage.made
    now: dict[str, str] = {}
    for other, each in ledger.of(Observation):  # oldest first
        if each.seat == report.seat.name and made[other.digest] > made[entry.digest]:
            now |= each.subjects
    return tuple(name for name in sorted(entry.subjects) if now.get(name, entry.subjects[name]) != entry.subjects[name])


__all__ = [
    "LONGEST_WAIVER",
    "clears_itself",
    "endless",
    "fault_of",
    "hopeless",
    "may_waive",
    "objections",
    "over",
    "revoked",
    "stale",
    "waivers_for",
]
