"""From a finished run to the folder that is committed: signed report, readable report, evidence."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from runner import archive
from runner.archive import Archive
from runner.assurance import witnesses
from runner.attest.keys import PrivateKey
from runner.attest.statement import sign
from runner.boots import label_of
from runner.errors import EvidenceError, StateError
from runner.files import write_whole
from runner.measured import pack
from runner.model.boot import BootRecord, Isolation
from runner.model.plan import PlannedBoot
from runner.model.report import (
    EvidencePart,
    GatePart,
    Measured,
    OrderPart,
    PlanPart,
    ReportPredicate,
    SeatPart,
)
from runner.model.run import RunRecord
from runner.model.verdict import Status, overall
from runner.paths import command
from runner.report_text import render

FOLDER_LIMIT = 300_000
"""Bytes of ``report.dsse.json``, ``report.md`` and ``evidence.tar.xz`` together."""

_LISTED_BYTES = 200
"""Room in report and text for the name and digest of one kept file, once the archive is known."""

REPORT, TEXT, EVIDENCE = "report.dsse.json", "report.md", "evidence.tar.xz"


def isolation_of(planned: tuple[PlannedBoot, ...], boots: tuple[BootRecord, ...]) -> Isolation:
    """``open`` where one boot loaded a library of the candidate, or what a recipe made, outside a sandbox."""
    loads = {boot.id for boot in planned if boot.libraries or boot.product}
    tools = {boot.sandbox.tool for boot in boots if boot.planned in loads}
    if not tools:
        return "no-candidate"
    return "open" if "none" in tools else "sandboxed"


def _require_self_tests(record: RunRecord) -> None:
    """A gate that passes its must-fail case, or was not fed one, signs nothing."""
    tested = {(test.gate, test.version): test for test in record.self_tests}
    for gate in record.plan.gates:
        test = tested.get((gate.name, gate.version))
        if test is None or test.status is Status.PASS:
            raise EvidenceError(
                "no report is signed: a gate has not shown that it can fail",
                where=f"{record.run}, {gate.name}@{gate.version}",
                expected="a must-fail case that the gate refuses",
                found="no case" if test is None else f"PASS on {test.case}",
            )


def _index(record: RunRecord, kept: Archive) -> EvidencePart:
    return EvidencePart(archive=kept.digest, files=record.evidence, kept=dict(kept.kept))


def predicate(record: RunRecord, kept: Archive | None = None) -> ReportPredicate:
    """The report's content; without an archive every evidence file is named as not kept.

    Raises EvidenceError where a gate has not shown that it can fail.
    """
    _require_self_tests(record)
    return ReportPredicate(
        created_at=record.ended_at,
        parents=(record.intent_digest,),
        run=record.run,
        order=OrderPart(name=record.plan.order, digest=record.order_digest, text=record.order_text),
        seat=SeatPart(
            name=record.plan.seat,
            digest=record.plan.seat_digest,
            label=label_of(record.boots),
            isolation=isolation_of(record.plan.boots, record.boots),
            manifest=record.manifest,
        ),
        plan=PlanPart(
            digest=record.plan_digest,
            seed_commitment=record.plan.seed_commitment,
            seed=record.seed,
            intent=record.intent_digest,
        ),
        started_at=record.started_at,
        ended_at=record.ended_at,
        verdict=overall(verdict.status for verdict in record.verdicts),
        gates=tuple(
            GatePart(
                name=verdict.gate,
                version=verdict.version,
                verdict=verdict.status,
                reasons=verdict.reasons,
                figures=verdict.figures,
            )
            for verdict in record.verdicts
        ),
        graders=record.plan.instruments,
        self_test=record.self_tests,
        assurance=witnesses(((verdict.gate, verdict.status) for verdict in record.verdicts), record.boots),
        environment=record.environment,
        costs=record.costs,
        repeats=record.repeats,
        challenge=record.challenge,
        craft=record.craft,
        evidence=_index(record, kept or Archive(b"", {})),
        record=pack(Measured(plan=record.plan, boots=record.boots, samples=record.samples)),
    )


def compose(record: RunRecord, key: PrivateKey, kept: Archive | None = None) -> bytes:
    """The signed report's bytes; the same record, key and archive give the same bytes.

    Raises InputError where the payload would be larger than 100 kB, else as :func:`predicate`.
    """
    return sign(predicate(record, kept), subject_digests(record), key)


def subject_digests(record: RunRecord) -> dict[str, str]:
    """What the report is about: what was planned, what was measured, the order and the plan.

    Raises EvidenceError where something measured is not what was planned.
    """
    for name, digest in record.plan.subjects.items():
        if record.subjects.get(name, digest) != digest:
            raise EvidenceError(
                "what ran is not what was planned", where=name, expected=digest, found=record.subjects[name]
            )
    own = {"order": record.order_digest, "plan": record.plan_digest}
    return {**record.plan.subjects, **record.subjects, **own}


def write_folder(record: RunRecord, key: PrivateKey, run_folder: Path, target: Path) -> Path:
    """Write ``target`` (``reports/<order>/<run>``) all at once; evidence is read from ``run_folder``.

    Raises StateError where ``target`` exists or cannot be written, else as :func:`compose`.
    """
    if target.exists():
        raise StateError("this report is written already", where=str(target), next_step=command("verify", target))
    files = archive.extracts(archive.read_evidence(run_folder, record.evidence), record.plan.windows)
    measured = Measured(plan=record.plan, boots=record.boots, samples=record.samples)
    content = predicate(record)
    digests = subject_digests(record)
    listed = _LISTED_BYTES * len(files)
    spare = FOLDER_LIMIT - listed - len(sign(content, digests, key)) - len(render(content, measured).encode())
    kept = archive.build(files, spare)
    content = content.model_copy(update={"evidence": _index(record, kept)})
    contents = {REPORT: sign(content, digests, key), TEXT: render(content, measured).encode()}
    if kept.data:
        contents[EVIDENCE] = kept.data
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        draft.mkdir(parents=True)
        for name, data in contents.items():
            write_whole(draft / name, data)
        draft.rename(target)
    except OSError as error:
        raise StateError("the report cannot be written", where=str(target), found=str(error.strerror)) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return target


def place_folder(made: Path, target: Path) -> None:
    """Copy a report's folder to ``target`` all at once. Raises StateError where it cannot be written."""
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        shutil.copytree(made, draft)
        draft.rename(target)
    except OSError as error:
        raise StateError("the report cannot be written", where=str(target), found=str(error)) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)


__all__ = [
    "EVIDENCE",
    "FOLDER_LIMIT",
    "REPORT",
    "TEXT",
    "compose",
    "isolation_of",
    "label_of",
    "place_folder",
    "predicate",
    "subject_digests",
    "write_folder",
]
