"""Whether a report is authentic and follows from itself: no network, no seat, no GPU.

Signature, exact structure, intent, plan, seed and order first; then what was measured against what was planned; then
every verdict again from the samples; then the evidence archive, and with ``deep`` every sample again from it.
"""

from __future__ import annotations

import os
from itertools import zip_longest
from pathlib import Path
from typing import Literal

from runner import archive
from runner.alike import alike
from runner.assurance import witnesses
from runner.attest import dsse
from runner.attest.statement import Signed, moment, open_signed
from runner.attest.trust import Source, Trust
from runner.digest import sha256_bytes, sha256_json
from runner.draw import Draw, commitment
from runner.errors import InputError, TrustError
from runner.files import read_plain
from runner.judge import judge, not_run, withdrawals
from runner.ledger import REPORTS, require_place
from runner.material import check_material
from runner.measured import unpack
from runner.model.base import Record
from runner.model.boot import Label
from runner.model.plan import Plan, PlannedGate
from runner.model.report import EvidencePart, GatePart, Measured, ReportPredicate
from runner.model.statement import SignedIntent
from runner.model.verdict import Figure, Status, Verdict, overall
from runner.replay import Replayed, read_evidence, replay
from runner.report import EVIDENCE, REPORT, TEXT
from runner.report_text import render
from runner.verify_ledger import check_challenge, intent_of
from runner.verify_order import check_order, may_stop
from runner.verify_plan import check_plan
from runner.verify_samples import check_samples
from runner.verify_seat import check_seat
from runner.verify_statement import check_files, check_self_test, check_statement, check_subjects, same, unknown_cases

_ARCHIVE_LIMIT = 16 << 20
"""Bytes of an evidence archive; what is committed is below 300 kB."""


class Verification(Record):
    """What ``verify`` found out about an authentic report."""

    path: str
    digest: str
    run: str
    order: str
    seat: str
    label: Label
    verdict: Status
    gates: dict[str, Status]
    signers: tuple[str, ...]
    trust: Source
    """``repository`` where everybody with this repository trusts the key, ``user`` where only this user does."""
    trusted_by: tuple[str, ...] = ()
    """File and line of each signer that was trusted."""
    created_at: str
    withdrawn: dict[str, str]
    """Gates and instruments whose version was found wrong since, with the reason: the report stands, what rests on it
    should not."""
    unknown_cases: tuple[str, ...] = ()
    """Must-fail cases that gates were shown before they judged and that this checkout does not have; it showed them its
    own."""
    unchallenged: tuple[str, ...] = ()
    """Graders of the report that the challenge it cites did not try, or tried as they were before."""
    text: Literal["same", "different", "missing"]
    """``report.md`` beside the report against what this version writes: never what was signed, only for reading."""
    kept: int
    not_kept: tuple[str, ...]
    replayed: tuple[str, ...] = ()
    """With ``deep``: samples read again from kept evidence, by window."""
    replayed_drawn: tuple[str, ...] = ()
    """With ``deep``: samples of which the positions drawn from the seed were read again."""
    needs_full_evidence: tuple[str, ...] = ()
    """With ``deep``: samples whose evidence is in the run folder only."""
    full_evidence: str = ""
    """With ``deep``: the run folder whose files were read again in place of the archive's extracts."""


def _check_sealed(report: ReportPredicate, intent: SignedIntent, plan: Plan, raw_plan: object, where: str) -> None:
    """Plan, seed, order and times agree with the intent that was signed first."""
    moved = "the plan was changed after it was sealed: nothing that was drawn from it follows any more"
    same(moved, report.plan.digest, sha256_json(raw_plan), where)
    same(moved, intent.plan_digest, report.plan.digest, where)
    same(
        "the seed is not the one committed to", plan.seed_commitment, commitment(bytes.fromhex(report.plan.seed)), where
    )
    for found in (report.plan.seed_commitment, intent.seed_commitment):
        same("the seed's commitment differs", plan.seed_commitment, found, where)
    same("the order's text was changed", report.order.digest, sha256_bytes(report.order.text.encode()), where)
    for found in (plan.order_digest, intent.order_digest):
        same("the plan was made for another order", report.order.digest, found, where)
    same("the order's name differs", (plan.order, plan.order), (report.order.name, intent.order), where)
    same("the run's name differs", intent.run, report.run, where)
    same("the seat differs", (plan.seat, plan.seat_digest), (report.seat.name, report.seat.digest), where)
    times = [intent.created_at, report.started_at, report.ended_at, report.created_at]
    if sorted(times, key=lambda text: moment(text, where)) != times:
        raise TrustError(
            "the times are not in order", where=where, expected="intent, start, end, report", found=", ".join(times)
        )


def _in_words(figure: Figure) -> str:
    """A figure as a person writes it."""
    return " ".join(part for part in (figure.name, figure.value, figure.unit, figure.limit) if part)


def _as_here(said: tuple[Figure, ...], here: tuple[Figure, ...]) -> tuple[Figure, ...]:
    """What was said, a value that differs by a machine's rounding alone as it comes out here."""
    return tuple(
        one.model_copy(update={"value": own.value}) if own is not None and alike(one.value, own.value) else one
        for one, own in zip_longest(said, here[: len(said)])
    )


def _check_verdicts(report: ReportPredicate, measured: Measured, where: str) -> None:
    """Every gate of the plan, in its order, says again what the report says it said."""
    plan = measured.plan
    planned = [(gate.name, gate.version) for gate in plan.gates]
    same("not the plan's gates", planned, [(gate.name, gate.version) for gate in report.gates], where)
    for sealed, stated in zip(plan.gates, report.gates, strict=True):
        place = f"{where}, {sealed.name}@{sealed.version}"
        try:
            kept_from_running = _kept_from_running(sealed, stated, report, measured)
            verdict = kept_from_running or judge(plan, sealed, measured.samples, measured.boots)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise TrustError("samples that their gate cannot judge", where=place, found=repr(error)) from error
        again = [verdict.status, *verdict.reasons, *map(_in_words, verdict.figures)]
        figures = _as_here(stated.figures, verdict.figures)
        said = [stated.verdict, *stated.reasons, *map(_in_words, figures)]
        for expected, found in zip_longest(again, said, fillvalue="nothing more"):
            same("the verdict does not follow from the samples", expected, found, place)
        same("the verdict does not follow from the samples", verdict.figures, figures, place)
    same("the overall verdict does not follow", overall(gate.verdict for gate in report.gates), report.verdict, where)
    stood = witnesses(((gate.name, gate.verdict) for gate in report.gates), measured.boots)
    same("the outside witnesses do not follow", stood, report.assurance, where)
    check_self_test(report, planned, where)


def _kept_from_running(
    sealed: PlannedGate, stated: GatePart, report: ReportPredicate, measured: Measured
) -> Verdict | None:
    """The verdict of a gate some of whose windows were never opened because a kill line had struck; None for any other.

    Whatever else lacks a sample is judged as it is: by the runner's word alone nothing is called NOT_RUN.
    """
    plan, sampled = measured.plan, {sample.window for sample in measured.samples}
    if stated.verdict is not Status.NOT_RUN or sampled.issuperset(sealed.windows):
        return None
    for other in plan.gates:
        told = not_run(sealed, other.name)
        if other.name not in plan.kill_lines or told.reasons != stated.reasons or not sampled.issuperset(other.windows):
            continue
        found = judge(plan, other, measured.samples, measured.boots)
        if may_stop(report.order.text, other.name, found.status):
            return told
    return None


def _archive(report: ReportPredicate, folder: Path) -> bytes:
    """The evidence archive, byte for byte the one that was signed; empty where nothing was kept."""
    path = folder / EVIDENCE
    data = b""
    if path.exists():
        try:
            data = read_plain(path, _ARCHIVE_LIMIT)
        except OSError as error:
            raise TrustError(
                "the evidence archive cannot be read", where=str(path), found=str(error.strerror)
            ) from error
    found = sha256_bytes(data) if data else None
    same("another evidence archive than was signed", report.evidence.archive, found, str(path))
    return data


def _kept(report: ReportPredicate, data: bytes, folder: Path) -> dict[str, bytes]:
    """The archive's files by name, each with the digest that the report gives it."""
    index = report.evidence
    if not index.kept.keys() <= index.files.keys():
        raise TrustError("evidence that never was is named as kept", where=str(folder))
    if not data and index.kept:
        raise TrustError("evidence is named as kept and there is no archive", where=str(folder))
    return archive.read(data, index.kept, str(folder / EVIDENCE)) if data else {}


def _text(report: ReportPredicate, measured: Measured, folder: Path) -> Literal["same", "different", "missing"]:
    path = folder / TEXT
    if not path.is_file():
        return "missing"
    text = render(report, measured).encode()
    try:
        return "same" if read_plain(path, len(text)) == text else "different"
    except OSError:  # longer than what was written, or not to be read
        return "different"


def read_report(path: Path, trust: Trust) -> tuple[Signed, ReportPredicate, Path]:
    """The signed report at ``path`` (the file or its folder). Raises InputError, TrustError."""
    file = path / REPORT if path.is_dir() else path
    try:
        data = read_plain(file, dsse.FILE_LIMIT)
    except OSError as error:
        raise InputError(
            "no report to read",
            where=str(file),
            expected=f"{REPORT}, or a folder that holds it",
            found=str(error.strerror),
            next_step="`runner reports` lists the reports of a workspace",
        ) from error
    signed = open_signed(data, trust, str(file))
    return signed, signed.of(ReportPredicate), file.parent


def _check_place(report: ReportPredicate, where: str) -> None:
    """Under a workspace's ``reports`` the folders name the order and the run, and nothing is a link.

    Anywhere else a report may lie.
    """
    file = Path(os.path.abspath(where))  # noqa: PTH100  # a link is judged by where it stands, not by what it shows
    for root in file.parents:
        if (root / "canon").is_dir() and file.is_relative_to(root / REPORTS):
            require_place(report, file.relative_to(root).as_posix())
            for place in (file, file.parent, file.parent.parent):
                if place.is_symlink():
                    raise TrustError(
                        "a symbolic link among signed files", where=str(place), expected="a file or folder of its own"
                    )


def _full(index: EvidencePart, folder: Path | None) -> dict[str, bytes]:
    """The full evidence where the run's own folder has it.

    Raises TrustError for a file that is another than the report was made from.
    """
    found: dict[str, bytes] = {}
    listed = {path.relative_to(folder).as_posix() for path in folder.glob("evidence/**/*.json")} if folder else set()
    if more := sorted(listed - index.files.keys()):
        raise TrustError(
            "the run has evidence that the report leaves out", where=str(folder), expected="none", found=", ".join(more)
        )
    for name, digest in index.files.items():
        path = folder / name if folder is not None else None
        if path is None or not path.is_file():
            continue
        found[name] = path.read_bytes()
        same("the run's own evidence is not what the report is made from", digest, sha256_bytes(found[name]), str(path))
    return found


def verify(
    path: Path, trust: Trust, workspace: Path | None = None, *, deep: bool = False, runs: Path | None = None
) -> Verification:
    """Check the report at ``path``. Raises TrustError for whatever does not follow, whatever its verdict says.

    With ``deep``, the full evidence is read from the run's own folder below ``runs``, where that is here, and whatever
    is not there from the archive beside the report.
    """
    signed, report, folder = read_report(path, trust)
    where = signed.where
    data = _archive(report, folder)
    measured, raw = unpack(report.record, where)
    announced = intent_of(report, folder, workspace, trust)
    intent = announced.of(SignedIntent)
    _check_sealed(report, intent, measured.plan, raw["plan"], where)
    check_statement(signed, report, announced)
    _check_place(report, where)
    check_subjects(signed, report, intent, measured.plan)
    unchallenged = check_challenge(report, workspace, trust, where)
    check_files(report, measured.plan, where)
    check_plan(report.order.text, report.seat.manifest, measured.plan, report.plan.digest, where)
    check_samples(report, measured, where)
    check_seat(report, measured, where)
    check_order(report.order.text, measured.plan, where)
    _check_verdicts(report, measured, where)
    kept = _kept(report, data, folder)
    again, told = Replayed(), ""
    if deep:
        own = runs / report.run if runs is not None else None
        full = _full(report.evidence, own)
        evidence = kept | full
        again = replay(measured, report.evidence, evidence, where, full=full.keys())
        told = str(own) if full else ""
        named = {digest for sample in measured.samples for digest in sample.evidence}
        files = report.evidence.files
        again.missing += sorted(name for name in files.keys() - evidence.keys() if files[name] not in named)
        draw = Draw(bytes.fromhex(report.plan.seed), report.plan.digest)
        for name, one in evidence.items():
            place = f"{folder / EVIDENCE}, {name}"
            check_material(read_evidence(one, place), measured.plan, draw, place)
    return Verification(
        path=str(path),
        digest=signed.digest,
        run=report.run,
        order=report.order.name,
        seat=report.seat.name,
        label=report.seat.label,
        verdict=report.verdict,
        gates={gate.name: gate.verdict for gate in report.gates},
        signers=tuple(signer.principal for signer in signed.signers),
        trust="repository" if all(signer.source == "repository" for signer in signed.signers) else "user",
        trusted_by=tuple(signer.where for signer in signed.signers),
        created_at=report.created_at,
        withdrawn=withdrawals(report),
        unknown_cases=unknown_cases(report),
        unchallenged=unchallenged,
        text=_text(report, measured, folder),
        kept=len(kept),
        not_kept=report.evidence.not_kept,
        replayed=tuple(again.whole),
        replayed_drawn=tuple(again.drawn),
        needs_full_evidence=tuple(again.missing),
        full_evidence=told,
    )


__all__ = ["Verification", "read_report", "verify"]
