"""Where every order of a workspace stands, and what to do next. There is no "done" but a verified signed report."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from runner import ledger
from runner.adoption import hopeless
from runner.attest.trust import load_trust
from runner.check import check_file
from runner.craft.attempt import CLONE
from runner.craft.bench import Bench
from runner.craft.crew import craftsperson
from runner.craft.dispatch import earlier, settled
from runner.craft.interruption import interruption
from runner.errors import InputError
from runner.graders import native_subjects
from runner.items import FILE, open_items
from runner.kill_lines import words_of
from runner.ledger import Ledger
from runner.listing import Listed, list_reports
from runner.model.base import Record
from runner.model.order import OrderFile, SurveyOrder, WorkOrder, files_of, load_order
from runner.model.report import ReportPredicate
from runner.order_lines import lines_struck
from runner.paths import command
from runner.readiness import missing
from runner.session import RunState, runs
from runner.steps.seats import load_manifest
from runner.summary import attempt_outcome
from runner.visible import visible

Stage = Literal[
    "malformed", "draft", "ready", "at work", "refused", "frozen", "running", "stopped", "judged", "killed", "decided"
]


class OrderStatus(Record):
    """One order."""

    order: str
    version: int
    file: str
    stage: Stage
    detail: str
    """Of the stage: the first fault, the attempt and its outcome, the run and its verdict, the decision."""
    items: tuple[str, ...]
    """Open items with owner and impact."""
    next: str
    """The command, or the deed, that brings it further."""


@dataclass(frozen=True)
class _Judged:
    """A report as it is listed, with what it is and where it lies."""

    listed: Listed
    ledger: Ledger
    report: ReportPredicate
    subjects: Mapping[str, str]


def order_states(workspace: Path) -> tuple[OrderStatus, ...]:
    """Every order file of the workspace, by name. Raises TrustError where the ledger does not hold."""
    trust = load_trust(workspace)
    book = ledger.load(workspace, trust)
    reports = {entry.digest: (report, entry.subjects) for entry, report in book.of(ReportPredicate)}
    listed = [
        (_Judged(one, book, *reports[one.digest]), reports[one.digest][0].order.digest)
        for one in list_reports(book)
        if one.digest in reports
    ]
    mine = runs()
    paths = sorted(path for path in (workspace / "orders").glob("*.yaml") if path.name != FILE.name)
    return tuple(_state(workspace, path, listed, mine) for path in paths)


def _state(workspace: Path, path: Path, listed: list[tuple[_Judged, str]], mine: list[RunState]) -> OrderStatus:
    shown = str(path.relative_to(workspace))
    try:
        file = load_order(path)
    except InputError as error:
        return OrderStatus(
            order=path.stem,
            version=0,
            file=shown,
            stage="malformed",
            detail=f"{error.what} ({error.where})",
            items=(),
            next=command("check", shown),
        )
    mentioned = [item for item in open_items(workspace) if item.order == file.order.id]
    stage, detail, following = _stage(workspace, path, file, listed, mine)
    blocking = [item.id for item in mentioned if item.impact == "blocks-adoption"]
    if blocking and following.startswith("runner adopt"):
        following = f"close {', '.join(blocking)}; then {following}"
    return OrderStatus(
        order=file.order.id,
        version=file.order.version,
        file=shown,
        stage=stage,
        detail=detail,
        items=tuple(f"{item.id}: {item.what} ({item.owner}, {item.impact})" for item in mentioned),
        next=following,
    )


def _stage(
    workspace: Path, path: Path, file: OrderFile, listed: list[tuple[_Judged, str]], mine: list[RunState]
) -> tuple[Stage, str, str]:
    """Stage, detail and next action: what is happening now first, then what happened last."""
    shown, bench = path.relative_to(workspace), Bench.of(file)
    if bench.folder.is_dir() and bench.at_work():
        lease = bench.lease()
        return (
            "at work",
            f"attempt {len(bench.attempts()) + 1} by {lease.craftsperson if lease else '?'}",
            "runner watch",
        )
    if person := _person_at_work(workspace, bench):
        number = len(bench.attempts()) + 1
        again = command("dispatch", shown, "--to", person, "--hand-in", "--execute")
        return "at work", f"attempt {number} by {person}, in {bench.attempt_folder(number) / CLONE}", again
    number = len(bench.attempts()) + 1
    folder = bench.attempt_folder(number)
    if stopped := interruption(folder, folder / CLONE):
        lease = bench.lease()
        again = command("dispatch", shown, "--to", lease.craftsperson if lease else "NAME", "--execute")
        return "stopped", f"attempt {number}: {stopped.told[-1]}", again
    for run in reversed(mine):
        if run.order_digest == file.digest and not run.reported:
            if run.at_work:
                return "running", f"run {run.run}: {run.state}", f"runner watch {run.run}"
            return "stopped", f"run {run.run}: {run.state}", command("execute", shown, "--resume", run.run)
    attempts = settled(bench, workspace) if bench.folder.is_dir() else ()
    last = attempts[-1] if attempts else None
    again = command("dispatch", shown, "--to", last.craftsperson, "--execute") if last else ""
    if last and last.findings:
        return "refused", visible(f"attempt {last.number}: {attempt_outcome(last)}"), again
    if last and last.waits:
        return "frozen", f"attempt {last.number} by {last.craftsperson}, commit {last.commit}", again
    reports = [one for one, digest in listed if digest == file.digest]
    before = earlier(bench, file.order.version, workspace)
    for one in (*before, *attempts[-1:]):
        if one.judged and one.judged.killed:
            where = "" if one is last else f" at another text of version {file.order.version}"
            detail = f"kill line {', '.join(one.judged.killed)} struck in attempt {one.number}{where}"
            return "killed", detail, "a new version of the order"
    if reports:
        return _judged(reports[-1], again or command("execute", shown))
    if faults := check_file(path):
        return "draft", str(faults[0]).replace(str(path), str(shown)), command("check", shown)
    if lacking := _lacking(file.order):
        return "draft", lacking[0], command("plan", shown)
    dispatched = files_of(file.order)
    return (
        "ready",
        f"{len(before)} attempts before, at other texts of version {file.order.version}" if before else "",
        command("dispatch", shown, "--to", "NAME", "--execute") if dispatched else command("execute", shown),
    )


def _person_at_work(workspace: Path, bench: Bench) -> str:
    """Who has a clone that is not handed in yet; empty for nobody."""
    lease = bench.lease()
    if lease is None or not (bench.attempt_folder(len(bench.attempts()) + 1) / CLONE).is_dir():
        return ""
    with suppress(InputError):  # no crew any more, or not this one
        if craftsperson(workspace, lease.craftsperson).kind == "person":
            return lease.craftsperson
    return ""


def _lacking(order: WorkOrder) -> tuple[str, ...]:
    """What the order still needs before it can be executed."""
    target = getattr(order, "target", None)
    if target is None:
        return () if isinstance(order, SurveyOrder) else ("it names no seat",)
    return missing(order, load_manifest(target.seat))


def _outdated(subjects: Mapping[str, str]) -> str:
    """Words where kernels were judged whose sources are not those of this checkout."""
    here = native_subjects()
    changed = [name.partition(".")[2] for name in here if subjects.get(name, here[name]) != here[name]]
    return f"; kernels/{', kernels/'.join(changed)} has changed since" if changed else ""


def _judged(judged: _Judged, again: str) -> tuple[Stage, str, str]:
    report = judged.listed
    struck = "".join(f"; kill line {words_of(line)} struck: {line.action}" for line in lines_struck(judged.report))
    detail = f"run {report.run}: {report.verdict}, {report.state}{struck}{_outdated(judged.subjects)}"
    if report.state in ("adopted", "rejected"):
        return "decided", detail, "nothing"
    if report.state == "refused":
        return "judged", f"{detail}: {report.reason}", command("verify", f"reports/{report.order}/{report.run}")
    if report.verdict != "PASS":
        return "judged", detail, again
    against = {scope: hopeless(judged.report, scope, judged.ledger) for scope in ("standing", "descriptive")}
    if not against["standing"]:
        return "judged", detail, f"runner adopt {report.run}"
    if not against["descriptive"]:
        return "judged", f"{detail}; {'; '.join(against['standing'])}", f"runner adopt {report.run} --descriptive"
    detail += f"; it can never be adopted: {'; '.join(against['descriptive'])}"
    return "judged", detail, f"runner review {report.run}"


__all__ = ["OrderStatus", "Stage", "order_states"]
