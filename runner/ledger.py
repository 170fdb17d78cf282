"""The ledger: every signed statement of a workspace, each naming the heads that its signer saw.

There is no index file. A statement is one file and its name is its digest, so branches of a repository merge without
conflict and the statements form a DAG by their ``parents``:

    reports/ledger/<digest>.dsse.json       intents, before the first boot; reproductions
    reports/<order>/<run>/report.dsse.json  reports; the parent is the intent
    canon/adoptions/<digest>.dsse.json      adoptions, rejections, waivers, revocations
    canon/observations/<digest>.dsse.json   what a seat was seen to be

Taking a file away leaves its children without a parent, which is refused; taking a report away leaves its intent
ABANDONED, which is shown. Only the last entries of all can vanish unseen, and git's history has those.
"""

from __future__ import annotations

import glob
import os
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

from runner import many
from runner.attest import dsse, statement
from runner.attest.keys import PrivateKey
from runner.attest.statement import Signed, open_envelope, sign
from runner.attest.trust import Trust
from runner.digest import sha256_bytes, sha256_json
from runner.errors import InputError, TrustError
from runner.files import read_plain, write_whole
from runner.lineage import Lineage, trace
from runner.measured import unpack
from runner.model.adoption import Observation
from runner.model.challenge import Challenge
from runner.model.report import Measured, ReportPredicate
from runner.model.run import Intent
from runner.model.statement import Predicate, SignedIntent
from runner.order_lines import draws_lines

SUFFIX = ".dsse.json"
REPORTS = Path("reports")
LEDGER, ADOPTIONS, OBSERVATIONS = Path("reports/ledger"), Path("canon/adoptions"), Path("canon/observations")
_BY_DIGEST = tuple(f"{folder.as_posix()}/" for folder in (LEDGER, ADOPTIONS, OBSERVATIONS))
"""Folders in which a file's name is its digest."""

P = TypeVar("P", bound=Predicate)


@dataclass(frozen=True)
class Outsider:
    """A file whose key nobody here trusts: it is known to be there and counts for nothing."""

    path: Path
    key_ids: tuple[str, ...]


@dataclass(frozen=True)
class Ledger:
    """Everything signed in one workspace, by digest."""

    entries: dict[str, Signed] = field(default_factory=dict)
    outsiders: dict[str, Outsider] = field(default_factory=dict)
    workspace: Path = Path()
    trust: Trust = field(default_factory=lambda: Trust(()))
    refused: dict[str, str] = field(default_factory=dict, compare=False, repr=False)
    """Of reports that were asked about what speaks against them, or nothing: see :mod:`runner.counts`."""

    def of(self, kind: type[P]) -> list[tuple[Signed, P]]:
        """Statements of one kind, oldest first."""
        return [(entry, entry.predicate) for entry in self._kinds[kind] if isinstance(entry.predicate, kind)]

    @cached_property
    def _kinds(self) -> defaultdict[type[Predicate], list[Signed]]:
        found: defaultdict[type[Predicate], list[Signed]] = defaultdict(list)
        for entry in self.oldest_first:
            found[type(entry.predicate)].append(entry)
        return found

    @cached_property
    def oldest_first(self) -> list[Signed]:
        """Every statement that counts."""
        made, place = self.lineage.made, self.lineage.place
        return [self.entries[each] for each in sorted(self.entries, key=lambda each: (made[each], place[each], each))]

    @cached_property
    def made_at(self) -> dict[str, list[Signed]]:
        """Statements by the time that they bear, as it is written."""
        found: defaultdict[str, list[Signed]] = defaultdict(list)
        for entry in self.entries.values():
            found[entry.predicate.created_at].append(entry)
        return dict(found)

    @cached_property
    def lineage(self) -> Lineage:
        """When statements were made, and what each has seen."""
        return trace(self.entries, self.trust)

    @cached_property
    def newest(self) -> str:
        """The time of the newest statement, as its signer wrote it; empty where there is none."""
        made = self.lineage.made
        own = [entry for entry in self.oldest_first if made[entry.digest] == entry.at]
        return own[-1].predicate.created_at if own else ""

    def challenge_of(self, seat: str) -> str | None:
        """Digest of the seat's newest challenge: what its later reports cite."""
        return next((entry.digest for entry, each in reversed(self.of(Challenge)) if each.seat == seat), None)

    def heads(self) -> tuple[str, ...]:
        """Digests that nothing names as a parent, sorted."""
        named = {parent for entry in self.entries.values() for parent in entry.predicate.parents}
        return tuple(sorted((self.entries.keys() | self.outsiders.keys()) - named))

    def abandoned(self) -> list[tuple[Signed, SignedIntent]]:
        """Intents that no report of their run and plan answers, oldest first."""
        answered = {
            report.plan.intent
            for _, report, intent in self._answers()
            if (report.run, report.plan.digest) == (intent.run, intent.plan_digest)
        }
        return [(entry, intent) for entry, intent in self.of(SignedIntent) if entry.digest not in answered]

    def _answers(self) -> Iterator[tuple[Signed, ReportPredicate, SignedIntent]]:
        """Reports that name an intent of their own signer's; anybody may name another's in vain."""
        intents = {entry.digest: (entry.keys, intent) for entry, intent in self.of(SignedIntent)}
        for entry, report in self.of(ReportPredicate):
            keys, intent = intents.get(report.plan.intent, (set(), None))
            if intent is not None and keys == entry.keys:
                yield entry, report, intent

    @cached_property
    def tries(self) -> dict[str, int]:
        """Intent digest to how often its candidate was tried, this time included.

        Under whatever order: a copy of an order with another name begins no new count. Where nothing is judged that has
        a digest, as on a simulated seat, the order is all there is to count by.
        """
        same = {
            entry.digest: sha256_json(intent.candidate or {"order": intent.order})
            for entry, intent in self.of(SignedIntent)
        }
        counts = Counter(same.values())
        return {digest: counts[key] for digest, key in same.items()}

    def whole(self, entry: Signed) -> ReportPredicate:
        """A report out of its file again: the ledger holds many and keeps neither record nor figures of any.

        Raises TrustError where the file has changed since.
        """
        data = (self.workspace / entry.where).read_bytes()
        if sha256_bytes(data) != entry.digest:
            raise TrustError("a report has changed", where=entry.where, expected=entry.digest, found=sha256_bytes(data))
        report = statement.read(dsse.parse(data, entry.where).payload, entry.where)[0].predicate
        assert isinstance(report, ReportPredicate), "the ledger opened this very file as a report"
        return report

    def measured(self, entry: Signed) -> Measured:
        """What the gates of a report read. Raises TrustError as :meth:`whole` does."""
        return unpack(self.whole(entry).record, entry.where)[0]

    def check(self) -> None:
        """Raises TrustError where a parent is missing or two reports answer one intent."""
        known = self.entries.keys() | self.outsiders.keys()
        for entry in self.entries.values():
            for parent in entry.predicate.parents:
                if parent not in known:
                    raise TrustError(
                        "the ledger has lost an entry",
                        where=entry.where,
                        expected=f"its parent {parent}{SUFFIX}",
                        found="no such file",
                        next_step="restore the file from git history",
                    )
        answers: dict[str, str] = {}
        for entry, report, _ in self._answers():
            if other := answers.get(report.plan.intent):
                raise TrustError("two reports answer one intent", where=entry.where, expected="one", found=other)
            answers[report.plan.intent] = entry.where


def _visible(folder: Path) -> list[str]:
    """Names in ``folder``, sorted; none where it does not exist. Raises TrustError for a symbolic link.

    What a link shows lies elsewhere, so the ledger would not be the same on another machine.
    """
    if not folder.is_dir():
        return []
    with os.scandir(folder) as found:
        inside = sorted((entry for entry in found if not entry.name.startswith(".")), key=lambda entry: entry.name)
    if link := next((entry for entry in inside if entry.is_symlink()), None):
        raise TrustError("a symbolic link among signed files", where=link.path, expected="a file or folder of its own")
    return [entry.name for entry in inside]


def _files(workspace: Path) -> Iterator[str]:
    """Signed files by their path in the workspace; reports a folder too high as well, so that they are refused."""
    for folder in _BY_DIGEST:
        for name in _visible(workspace / folder):
            yield folder + name
    reports, root = workspace / REPORTS, f"{workspace}/"
    for order in _visible(reports):
        if order == f"report{SUFFIX}":
            yield f"{REPORTS.as_posix()}/{order}"
        if order == LEDGER.name or not (reports / order).is_dir():
            continue
        for run in _visible(reports / order):
            name = f"{REPORTS.as_posix()}/{order}/{run}"
            if run == f"report{SUFFIX}":
                yield name
            elif os.path.lexists(f"{root}{name}/report{SUFFIX}"):
                yield f"{name}/report{SUFFIX}"


def read_entry(where: str, workspace: Path, trust: Trust) -> tuple[str, Signed | Outsider]:
    """The signed file ``where`` of the workspace and its digest. Raises TrustError as :func:`load` does."""
    try:
        data = read_plain(workspace / where, dsse.FILE_LIMIT, links=False)
    except OSError as error:
        raise TrustError(
            "a signed file cannot be read", where=where, expected="a plain file", found=str(error.strerror)
        ) from error
    if where.startswith(_BY_DIGEST) and not where.endswith(f"/{sha256_bytes(data)}{SUFFIX}"):
        expected = sha256_bytes(data) + SUFFIX
        raise TrustError("a ledger entry has changed", where=where, expected=expected, found=Path(where).name)
    envelope = dsse.parse(data, where)
    digest = envelope.digest
    key_ids = tuple(each.key_id for each in envelope.signatures)
    if all(trust.key(key_id) for key_id in key_ids):
        return digest, open_envelope(envelope, trust, where)
    return digest, Outsider(Path(where), key_ids)


def load(workspace: Path, trust: Trust) -> Ledger:
    """Every signed file of the workspace, verified.

    Raises TrustError for a changed or misnamed file, a signature that does not hold, a key used outside its role or
    time, a report in another place than its own, a missing parent, or two reports for one intent.
    """
    known: dict[Any, Any] = {}
    with many.collector_paused():
        found = many.each(partial(_open, workspace, trust, {}), list(_files(workspace)))
        opened = [(digest, _sharing(one, known)) for digest, one in found]
    ledger = Ledger(
        {digest: one for digest, one in opened if isinstance(one, Signed)},
        {digest: one for digest, one in opened if isinstance(one, Outsider)},
        workspace,
        trust,
    )
    ledger.check()
    return ledger


def _sharing(one: Signed | Outsider, known: dict[Any, Any]) -> Signed | Outsider:
    """The same with what an earlier one has alike: many reports are of few orders, libraries and graders.

    A process that reads files does so before it hands them on in one piece, and who takes the pieces does so again.
    """
    if isinstance(one, Outsider):
        return one
    same = known.setdefault
    subjects = {same(name, name): same(digest, digest) for name, digest in one.subjects.items()}
    predicate = one.predicate
    if isinstance(predicate, ReportPredicate):
        order, seat = same(predicate.order, predicate.order), predicate.seat
        graders = same(tuple(predicate.graders.items()), predicate.graders)
        if seat.manifest is not None and (first := same(("manifest", seat.digest), seat.manifest)) == seat.manifest:
            seat = seat.model_copy(update={"manifest": first})
        predicate = predicate.model_copy(update={"order": order, "graders": graders, "seat": seat})
    return Signed(one.digest, predicate, one.raw, subjects, one.signers, one.where)


def _open(workspace: Path, trust: Trust, known: dict[Any, Any], where: str) -> tuple[str, Signed | Outsider]:
    """One file of :func:`load` in its place, without what many would be too much to hold.

    That is ``raw``, and of a report its packed record, its index of evidence, its self-test, its costs and, unless a
    kill line may rest on them, its figures: see :meth:`Ledger.whole`.
    """
    digest, entry = read_entry(where, workspace, trust)
    if isinstance(entry, Outsider):
        return digest, entry
    predicate = entry.predicate
    if isinstance(predicate, ReportPredicate):
        require_place(predicate, where)
        light: dict[str, object] = {
            "record": predicate.record.model_copy(update={"data": ""}),
            "evidence": predicate.evidence.model_copy(update={"files": {}, "kept": {}}),
            "self_test": (),
            "costs": (),
        }
        if not draws_lines(predicate.order.text):
            light["gates"] = tuple(
                gate.model_copy(update={"figures": ()}) if gate.figures else gate for gate in predicate.gates
            )
        predicate = predicate.model_copy(update=light)
    return digest, _sharing(replace(entry, predicate=predicate, raw={}), known)


def require_place(report: ReportPredicate, where: str) -> None:
    """Raises TrustError for a report that lies under another order's or run's name, by its path in a workspace."""
    own = f"{REPORTS.as_posix()}/{report.order.name}/{report.run}/report{SUFFIX}"
    if where != own:
        raise TrustError("a report in another place than its own", where=where, expected=own, found=where)


def find_report(workspace: Path, run: str) -> Path:
    """The folder of the run's report. Raises InputError where there is none, or more than one."""
    found = sorted((workspace / "reports").glob(f"*/{glob.escape(run)}/report{SUFFIX}"))
    if len(found) != 1:
        raise InputError(
            "no such report" if not found else "several reports of this name",
            where=str(workspace / "reports"),
            expected="the name of one run",
            found=run,
            next_step="`runner reports` lists them",
        )
    return found[0].parent


def append(workspace: Path, folder: Path, data: bytes) -> Path:
    """Add one signed file to ``workspace / folder`` under its digest; what stands there already is left alone."""
    path = workspace / folder / (sha256_bytes(data) + SUFFIX)
    write_whole(path, data)
    return path


def append_intent(workspace: Path, trust: Trust, intent: Intent, key: PrivateKey) -> tuple[str, bytes]:
    """Sign ``intent`` onto the present heads and add it; its digest and the file's bytes."""
    signed = SignedIntent(parents=load(workspace, trust).heads(), **intent.model_dump())
    digests = {**intent.candidate, "order": intent.order_digest, "plan": intent.plan_digest}
    data = sign(signed, digests, key)
    append(workspace, LEDGER, data)
    return sha256_bytes(data), data


def append_observation(workspace: Path, observation: Observation, key: PrivateKey) -> Path:
    """Sign and add what a seat was seen to be."""
    return append(workspace, OBSERVATIONS, sign(observation, observation.subjects, key))


__all__ = [
    "ADOPTIONS",
    "LEDGER",
    "OBSERVATIONS",
    "SUFFIX",
    "Ledger",
    "Outsider",
    "append",
    "append_intent",
    "append_observation",
    "find_report",
    "load",
    "read_entry",
    "require_place",
]
