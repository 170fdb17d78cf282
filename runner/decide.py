"""What people decide: adopt, reject, waive, revoke. Each decision is a signed file on the ledger's present heads."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from runner import canon, ledger
from runner.adoption import (
    LONGEST_WAIVER,
    clears_itself,
    endless,
    fault_of,
    may_waive,
    objections,
    revoked,
    stale,
    waivers_for,
)
from runner.attest.dsse import SigningKey
from runner.attest.keys import own_name
from runner.attest.statement import Signed, moment, open_signed, sign
from runner.attest.trust import Role, Trust, load_trust, repository_file
from runner.canon_entry import launch_command, launched, made_pack, taken_out
from runner.clock import now
from runner.decisions import current, decisions, stands_instead
from runner.errors import InputError, StateError, TrustError
from runner.hidden import first_unseen
from runner.items import blocking
from runner.ledger import ADOPTIONS, SUFFIX, Ledger
from runner.model.adoption import Adoption, ReportName, Revocation, Waiver
from runner.model.report import ReportPredicate
from runner.model.statement import Predicate
from runner.model.verdict import Status
from runner.paths import RUNS, command, state_home
from runner.report import EVIDENCE, REPORT
from runner.verify import Verification, verify

_AHEAD = (
    "wait until then; or, where that time is ahead of all clocks, let a runner sign something on top of it "
    "(`runner seat readback SEAT --record`)"
)
"""What to do about a statement that is newer than now."""


@contextmanager
def _alone(workspace: Path) -> Iterator[None]:
    """One decision of this machine at a time; the lock is on the folder itself, so no file is left."""
    descriptor = os.open(workspace / "canon", os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def read_again(checked: Verification) -> str:
    """What ``verify`` with ``deep`` read, in words."""
    again, drawn = len(checked.replayed), checked.replayed_drawn
    origin = f"the full evidence in {checked.full_evidence}" if checked.full_evidence else "the committed extracts"
    text = f"read again from {origin}: {again} samples"
    return text + (f"; only at the positions drawn from the seed: {', '.join(drawn)}" if drawn else "")


@dataclass(frozen=True)
class Desk:
    """One person deciding in one workspace. Only the repository's trust counts here."""

    workspace: Path
    trust: Trust
    ledger: Ledger
    key: SigningKey
    at: str
    note: Callable[[str], None] = lambda text: None
    """Where a person reads what was done on the way."""

    @classmethod
    def open(
        cls, workspace: Path, key: SigningKey, at: str | None = None, note: Callable[[str], None] = lambda text: None
    ) -> Desk:
        """Raises TrustError where the ledger does not hold."""
        trust = load_trust(workspace, user=False)
        return cls(workspace, trust, ledger.load(workspace, trust), key, at or now(), note)

    def report(self, run: str, *, deep: bool = False) -> tuple[Signed, ReportName]:
        """The run's report, verified, with ``deep`` down to its raw evidence, all of which has to be here.

        Raises InputError, TrustError.
        """
        folder = ledger.find_report(self.workspace, run)
        for outsider in self.ledger.outsiders.values():
            if self.workspace / outsider.path == folder / REPORT:
                for key_id in outsider.key_ids:
                    self._require_trusted(key_id, "runner")
        checked = verify(folder, self.trust, self.workspace, deep=deep, runs=state_home() / RUNS)
        if checked.needs_full_evidence:
            raise TrustError(
                "samples whose evidence is not here: nobody can tell whether they were measured",
                where=str(folder / EVIDENCE),
                expected=f"every file that the report lists, in the archive or below {state_home() / RUNS / run}",
                found=f"nothing for {', '.join(checked.needs_full_evidence)}",
                next_step="bring the run's folder from the machine that measured it",
            )
        if deep:
            self.note(read_again(checked))
        return self.ledger.entries[checked.digest], ReportName(
            run=checked.run, order=checked.order, digest=checked.digest
        )

    def _require_trusted(self, key_id: str, role: Role) -> None:
        """A decision speaks for everybody, so it rests on the repository's keys alone. Raises TrustError."""
        if self.trust.key(key_id) is None:
            options = () if role == "runner" else ("--role", role)
            raise TrustError(
                "a key that nobody here trusts: the repository must, what you trust yourself does not count",
                where=str(repository_file(self.workspace)),
                expected=f"a line for the key with the role {role}",
                found=key_id,
                next_step=f"`{command('keys', 'trust', own_name(key_id), *options, '--repository')}`",
            )

    def require_date(self, made: Adoption | Waiver | Revocation) -> None:
        """Raises TrustError where the decision would not count because of its time."""
        if fault := fault_of(made, self.ledger):
            raise TrustError(
                "the decision bears an earlier time than what it saw",
                where=str(self.workspace),
                expected=f"nothing newer than {made.created_at}",
                found=fault.partition(": ")[2],
                next_step=_AHEAD,
            )

    def sign(self, predicate: Adoption | Waiver | Revocation, subjects: dict[str, str]) -> Path:
        """Sign, check as any reader would, add to the ledger, and make the canon again: all of it, or nothing.

        Raises StateError where the ledger has changed since this desk was opened: the decision has not seen that.
        TrustError where the decision would not count.
        """
        self._require_trusted(self.key.public.id, "adopter")
        self.require_date(predicate)
        data = sign(predicate, subjects, self.key)
        signed = open_signed(data, self.trust, "the new statement")
        with _alone(self.workspace):
            if (heads := ledger.load(self.workspace, self.trust).heads()) != self.ledger.heads():
                raise StateError(
                    "somebody has signed something since this decision was begun",
                    where=str(self.workspace),
                    expected=f"the heads it saw: {', '.join(each[:16] for each in self.ledger.heads())}",
                    found=", ".join(each[:16] for each in heads),
                    next_step="look at `runner reports` and decide again",
                )
            where = (ADOPTIONS / (signed.digest + SUFFIX)).as_posix()
            entries = self.ledger.entries | {signed.digest: replace(signed, where=where, raw={})}
            text = canon.render(replace(self.ledger, entries=entries))  # before anything is written: this can fail
            path = ledger.append(self.workspace, ADOPTIONS, data)
            try:
                canon.write(self.workspace, text)
            except StateError:
                path.unlink()
                raise
        return path


def adopt(desk: Desk, run: str, reason: str, *, seat: str | None = None, descriptive: bool = False) -> Path:
    """Adopt a report; the statement's path. Raises TrustError with everything that speaks against it."""
    entry, name = desk.report(run, deep=True)
    measured_on = entry.of(ReportPredicate).seat.name
    if seat not in (None, measured_on):
        raise TrustError(
            "this report cannot be adopted for another seat",
            where=entry.where,
            expected=measured_on,
            found=f"it was measured on {measured_on}, not on {seat}",
        )
    adoption = Adoption(
        created_at=desk.at,
        parents=desk.ledger.heads(),
        result="ADOPTED",
        report=name,
        seat=measured_on,
        scope="descriptive" if descriptive else "standing",
        waivers=_usable_waivers(desk, entry),
        reason=_reason(reason),
    )
    against = [*objections(entry, adoption, {desk.key.public.id}, desk.ledger)]
    against += [f"it is {said}" for said in _adopted_already(adoption, desk.ledger)]
    against += [f"{subject} has changed on the seat since" for subject in stale(entry, desk.ledger)]
    against += [f"open item {item.id}: {item.what} ({item.owner})" for item in blocking(desk.workspace, name.order)]
    if against:
        raise TrustError(
            "this report cannot be adopted",
            where=entry.where,
            expected="nothing against it",
            found="; ".join(against),
            next_step=_AHEAD if fault_of(adoption, desk.ledger) else "",
        )
    path = desk.sign(adoption, {"report": entry.digest})
    if adoption.scope == "standing":
        for before in current(decisions(desk.ledger), "standing"):
            if before.report.seat.name == measured_on and before.entry.digest != entry.digest:
                desk.note(f"takes the place of run {before.report.run} of order {before.report.order.name}")
    return path


def _usable_waivers(desk: Desk, entry: Signed) -> tuple[str, ...]:
    """Waivers of the report for an adoption to rest on: of each gate those that still run, else all it had."""
    found, at = waivers_for(desk.ledger, entry.digest), moment(desk.at, "now")
    running = {signed.digest: each.gate for signed, each in found if at <= moment(each.expires_at, signed.where)}
    gates = set(running.values())
    return tuple(signed.digest for signed, each in found if signed.digest in running or each.gate not in gates)


def _adopted_already(adoption: Adoption, book: Ledger) -> list[str]:
    """The adoption of this report, in the same scope and on the same waivers, that is in the canon as it is."""
    return [
        f"adopted already, by {each.by} on {each.adoption.created_at}"
        for each in current(decisions(book), adoption.scope)
        if each.adoption.report == adoption.report and each.adoption.waivers == adoption.waivers
    ]


def _reason(text: str) -> str:
    """Raises InputError for a reason that says nothing."""
    if not text.strip():
        raise InputError("a decision needs its reason", where="--reason", expected="words", found=repr(text))
    if (at := first_unseen(text)) is not None:
        raise InputError(
            "a reason that does not read as it looks",
            where="--reason",
            expected="no character that shows nothing, or turns the text",
            found=f"U+{ord(text[at]):04X} at {at}",
        )
    return text


def reject(desk: Desk, run: str, reason: str) -> Path:
    """Decline a report for good reason; it stays listed with it."""
    entry, name = desk.report(run)
    rejection = Adoption(
        created_at=desk.at,
        parents=desk.ledger.heads(),
        result="REJECTED",
        report=name,
        seat=entry.of(ReportPredicate).seat.name,
        scope="standing",
        waivers=(),
        reason=_reason(reason),
    )
    return desk.sign(rejection, {"report": entry.digest})


def waive(desk: Desk, run: str, gate: str, reason: str, expires_at: str) -> Path:
    """Let one gate stand open until a day.

    Raises InputError for a gate that the report does not have or passed, and for a verdict that nobody may waive.
    """
    entry, name = desk.report(run)
    gates = entry.of(ReportPredicate).gates
    expected = ", ".join(each.name for each in gates if may_waive(each)) or "none of this report can be waived"
    judged = next((each for each in gates if each.name == gate and each.verdict is not Status.PASS), None)
    if judged is None:
        raise InputError("no such gate to waive", where=entry.where, expected=expected, found=gate)
    if not may_waive(judged):
        raise InputError(
            "nobody can waive this: it says that what was measured is not what is claimed, or that nothing was",
            where=entry.where,
            expected=expected,
            found=f"{gate} is {judged.verdict}",
        )
    if moment(expires_at, "expiry") <= moment(desk.at, "now"):
        late = f"later than {desk.at}"
        raise InputError("a waiver that has expired already", where="--until", expected=late, found=expires_at)
    waiver = Waiver(
        created_at=desk.at,
        parents=desk.ledger.heads(),
        report=name,
        gate=gate,
        reason=_reason(reason),
        expires_at=expires_at,
    )
    if endless(waiver):
        raise InputError(
            "a waiver without an end: whoever still means it later waives again",
            where="--until",
            expected=f"at most {LONGEST_WAIVER.days} days from now",
            found=expires_at,
        )
    return desk.sign(waiver, {"report": entry.digest})


_SHORTEST = 8
"""Characters of a digest that name a decision."""


def decision(book: Ledger, digest: str, *kinds: type[Predicate]) -> Signed:
    """The one decision that stands and whose digest begins so. Raises InputError where there is none, or several."""
    gone = revoked(book)
    found = [
        entry
        for kind in kinds
        for entry, _ in book.of(kind)
        if len(digest) >= _SHORTEST and entry.digest.startswith(digest) and entry.digest not in gone
    ]
    if len(found) != 1:
        raise InputError(
            "no single decision of this digest",
            where=str(book.workspace / ADOPTIONS),
            expected=f"the digest of one decision that stands, or the first {_SHORTEST} or more of its characters",
            found=f"{digest or 'nothing'}: {', '.join(entry.digest for entry in found) or 'none'}",
            next_step="its file's name there is its digest; adopt, reject and waive print it",
        )
    return found[0]


def revoke(desk: Desk, digest: str, reason: str) -> Path:
    """Take an adoption, rejection or waiver back, named by its digest or the beginning of it."""
    taken_back = decision(desk.ledger, digest, Adoption, Waiver).digest
    words = _reason(reason)
    revocation = Revocation(created_at=desk.at, parents=desk.ledger.heads(), revokes=taken_back, reason=words)
    if fault := clears_itself(revocation, {desk.key.public.id}, desk.ledger):
        raise TrustError(
            "nobody clears an own report of what somebody else said against it",
            where=desk.ledger.entries[taken_back].where,
            expected="another adopter's key, or that of whoever rejected it",
            found=f"a key that {fault}",
        )
    return desk.sign(revocation, {"decision": taken_back})


def way_back(book: Ledger, digest: str) -> tuple[str, str]:
    """The adoption's digest, and the launch of what stood before it, out of the canon's own statements.

    Raises InputError where no single adoption is meant.
    """
    entry = decision(book, digest, Adoption)
    adoption = entry.of(Adoption)
    if adoption.result != "ADOPTED":
        raise InputError("not an adoption", where=entry.where, expected="ADOPTED", found=adoption.result)
    before = stands_instead(book, entry.digest)
    if all(each.signed.digest != entry.digest for each in current(decisions(book), "standing")):
        stands = before and f"run {before.report.run}, adopted on {before.adoption.created_at} by {before.by}, does"
        return entry.digest, f"it does not stand ({stands or 'nothing does'}), so there is nothing to go back from"
    if before is None:
        text = f"nothing was adopted before it: {adoption.seat} stands as its manifest says (runner seat up)"
        return entry.digest, text
    boot = launched(book.measured(before.entry))
    steps = [f"back to run {before.report.run}, adopted on {before.adoption.created_at} by {before.by}"]
    if boot is not None:
        launch = launch_command(before.report, boot, made=made_pack(before) is not None)
        steps += ["stop the engine, then start", "", launch, "", *taken_out(before)]
        steps += [f"ready when it says {boot.kv_tokens} KV tokens and {boot.resolved.get('variant', 'the incumbent')}"]
    return entry.digest, "\n".join(steps)


__all__ = ["Desk", "adopt", "decision", "reject", "revoke", "waive", "way_back"]
