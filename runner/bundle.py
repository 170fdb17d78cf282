"""What comes back from a seat on another machine, taken into the run that is waiting for it, or refused as a whole.

Candidate code ran there, so nothing in a bundle is believed that can be seen here: names are those that this plan's
measurement leaves and no others, every boot names the one machine and what was built, and a kill line strikes by the
evidence, not by word. A bundle that is refused, be it by the report's own verification, leaves the run as it was.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import ValidationError

from runner import archive
from runner.attest.canonical import first_fault, parse_canonical
from runner.away import BUNDLE_LIMIT, FILES, JOURNAL, MEASURING, NAMES
from runner.digest import sha256_bytes
from runner.errors import EvidenceError, InputError, StateError, TrustError
from runner.files import read_plain, write_whole
from runner.identity import identity_faults
from runner.ledger import REPORTS
from runner.model.base import Digest, Record
from runner.model.boot import BootRecord
from runner.model.evidence import Evidence
from runner.model.host import Host
from runner.model.plan import Plan
from runner.plan import plan_digest
from runner.steps.boots import AFTER_BOOTS, BOOTS, boot_records, nothing_answered, to_measure
from runner.steps.evidence import FOLDER
from runner.steps.journal import TAKEN_IN, Event, Journal
from runner.steps.judge import struck
from runner.steps.reduce import reduce
from runner.steps.state import Run, Sealed

BEFORE = "journal-before-bundle.jsonl"
"""The run's journal as it was before any bundle: each one is taken into the run as ``execute`` left it."""
_NAME = re.compile(
    r"(?:boots/(?P<boot>[a-z0-9.-]+)-[0-9a-f]{8}\.json)"
    r"|(?:logs/(?P<log>[a-z0-9.-]+)-[0-9a-f]{8}\.log)"
    r"|(?:evidence/(?P<window>[a-z0-9.-]+)\.json)"
    r"|(?:evidence/(?:aborted|disturbed)/(?P<again>[a-z0-9.-]+)\.[1-9][0-9]*\.json)"
)
"""All that a measurement leaves beside its journal: whole names, so that there is no way out of the run's folder."""
_EVENTS: Mapping[str, tuple[str, ...]] = {
    "boot-started": ("planned",),
    "boot-paused": ("planned", "boot"),
    "boot-aborted": ("planned", "boot"),
    "boot-ended": ("planned", "boot"),
    "window-opened": ("window", "boot"),
    "window-closed": ("window", "boot", "digest"),
    "window-aborted": ("window",),
    "window-disturbed": ("window",),
    "block-disturbed": ("window",),
}
"""Events that are taken over, and the facts that each must have as text."""
_MORE = ("ended", "variant", "explained")
"""Facts that some of them have besides."""


class Told(Record):
    """``bundle.json``."""

    run: str
    plan_digest: Digest
    host: Host
    files: dict[str, Digest]


@dataclass(frozen=True)
class Bundle:
    """A bundle that holds what it says, and nothing that a measurement of the plan does not leave."""

    told: Told
    contents: Mapping[str, bytes]
    """Files by name, the journal not among them."""
    events: tuple[Event, ...]
    boots: tuple[BootRecord, ...]


@contextmanager
def taken_in(run: Run, folder: Path, *, partial: bool = False) -> Iterator[Run]:
    """The run with a bundle's files and events; ``partial``: also of one that lacks whole boots.

    Where the bundle, or what is made of it inside the ``with``, is refused, everything that it brought is gone again.

    Raises InputError where it is no bundle, or a part that nobody said would do, StateError where the run is signed
    already, and TrustError where the bundle is another run's or plan's, does not hold what it says, was measured on two
    machines or with another library than was planned.
    """
    plan = Plan.model_validate_json((run.folder / "plan.json").read_bytes())
    signed = run.workspace / REPORTS / plan.order / run.name
    if signed.exists():
        raise StateError("this run is signed already", where=str(signed), next_step="`runner verify` reads its report")
    bundle = open_bundle(run.name, plan, folder)
    if not (run.folder / BEFORE).exists():
        write_whole(run.folder / BEFORE, run.journal.path.read_bytes())
    try:
        made = _filled(_emptied(run), plan, bundle)
        if not partial:
            _require_whole(made, bundle, str(folder))
        made.journal.write(TAKEN_IN, host=bundle.told.host.model_dump(mode="json"))
        yield made
    except (EvidenceError, InputError, TrustError):
        _emptied(run)
        raise


def open_bundle(run: str, plan: Plan, folder: Path) -> Bundle:
    """Read a bundle, and write nothing. Raises as :func:`taken_in`."""
    where = str(folder)
    try:
        data, packed = (read_plain(folder / name, BUNDLE_LIMIT, links=False) for name in (NAMES, FILES))
    except OSError as error:
        expected = f"{NAMES} and {FILES}, two plain files"
        raise InputError("no bundle here", where=where, expected=expected, found=str(error)) from error
    try:
        told = Told.model_validate(parse_canonical(data, str(folder / NAMES)))
    except ValidationError as error:
        raise TrustError("a bundle that does not say what it is", where=where, found=first_fault(error)) from error
    if (told.run, told.plan_digest) != (run, plan_digest(plan)):
        expected, found = f"run {run}, plan {plan_digest(plan)}", f"run {told.run}, plan {told.plan_digest}"
        raise TrustError("a bundle of another run", where=where, expected=expected, found=found)
    for name in told.files:
        _require_name(name, plan, where)
    contents = archive.read(packed, told.files, where)
    events, hosts = _events(contents.pop(JOURNAL, b""), where)
    boots = tuple(_boots(contents, plan, where))
    if hosts != {told.host.identity} or any(boot.host != told.host.identity for boot in boots):
        named = hosts | {boot.host or "a boot without one" for boot in boots}
        raise TrustError(
            "a bundle of two machines, or of none that it names",
            where=where,
            expected=f"host {told.host.identity} in its journal and in every boot",
            found=", ".join(sorted(named)) or "none",
            next_step="measure the job anew from a fresh copy",
        )
    _require_evidence(contents, boots, where)
    return Bundle(told, contents, events, boots)


def _require_name(name: str, plan: Plan, where: str) -> None:
    """The journal's, or one that this plan's measurement leaves."""
    found = _NAME.fullmatch(name)
    kind = found.lastgroup if found else ""
    windows = {window.id for window in plan.windows if not window.instrument.startswith(AFTER_BOOTS)}
    known = {boot.id for boot in plan.boots} if kind in ("boot", "log") else windows
    if name != JOURNAL and (found is None or found[str(kind)] not in known):
        raise TrustError("a file that no measurement leaves", where=where, found=name)


def _boots(contents: Mapping[str, bytes], plan: Plan, where: str) -> Iterator[BootRecord]:
    """Boots that found the fault themselves ended at it and measured nothing; their record stays."""
    planned = {boot.id: boot for boot in plan.boots}
    for name in sorted(contents):
        if not name.startswith(f"{BOOTS}/"):
            continue
        try:
            boot = BootRecord.model_validate_json(contents[name], strict=True)
        except ValidationError as error:
            raise TrustError("a boot that is no record", where=f"{where}, {name}", found=first_fault(error)) from error
        _require_stem(name, boot.id, boot.planned, where)
        if faults := identity_faults(boot, planned[boot.planned], plan):
            place = f"{where}, {boot.id}"
            raise TrustError("another library than was planned ran", where=place, found="; ".join(faults))
        yield boot


def _require_stem(name: str, said: str, planned: str, where: str) -> None:
    """A file's name is that of what it holds."""
    found = _NAME.fullmatch(name)
    named = (Path(name).stem, found["boot"] if found else "")
    if named != (said, planned):
        raise TrustError(
            "a boot under another's name", where=where, expected=" of ".join(named), found=f"{said} of {planned}"
        )


def _require_evidence(contents: Mapping[str, bytes], boots: Iterable[BootRecord], where: str) -> None:
    """Evidence is of the window whose name it bears, and of a boot that is in the bundle."""
    known = {boot.id for boot in boots}
    for name, data in contents.items():
        if not name.startswith(f"{FOLDER}/"):
            continue
        place, found = f"{where}, {name}", _NAME.fullmatch(name)
        try:
            evidence = Evidence.model_validate_json(data, strict=True)
        except ValidationError as error:
            raise TrustError("evidence that is no evidence record", where=place, found=first_fault(error)) from error
        if found is None or evidence.window != found[str(found.lastgroup)]:
            raise TrustError("evidence under another window's name", where=place, found=evidence.window)
        if evidence.boot not in known:
            raise TrustError("evidence of a boot that is not in the bundle", where=place, found=evidence.boot)


def _events(data: bytes, where: str) -> tuple[tuple[Event, ...], set[str]]:
    """The measured events of a journal that came in, and the machines that it names."""
    kept: list[Event] = []
    hosts: set[str] = set()
    for number, line in enumerate(data.splitlines(), 1):
        place = f"{where}, {JOURNAL}:{number}"
        facts = parse_canonical(line, place)
        if not isinstance(facts, dict) or not isinstance(facts.get("event"), str):
            raise TrustError("an event that is none", where=place, found=str(facts)[:80])
        kind, at = str(facts.pop("event")), str(facts.pop("at", ""))
        if kind == MEASURING:
            hosts.add(str(facts.get("host", "none")))
        if kind not in _EVENTS:
            continue
        if not all(isinstance(facts.get(name), str) for name in _EVENTS[kind]):
            raise TrustError("an event that lacks a fact", where=place, expected=", ".join(_EVENTS[kind]), found=kind)
        kept.append(Event(kind, at, {name: facts[name] for name in (*_EVENTS[kind], *_MORE) if name in facts}))
    return tuple(kept), hosts


def _emptied(run: Run) -> Run:
    """The run as ``execute`` left it, before any bundle."""
    for name in (BOOTS, FOLDER, "logs"):
        shutil.rmtree(run.folder / name, ignore_errors=True)
    (run.folder / "record.json").unlink(missing_ok=True)
    write_whole(run.journal.path, (run.folder / BEFORE).read_bytes())
    return replace(run, journal=Journal(run.journal.path))


def _filled(run: Run, plan: Plan, bundle: Bundle) -> Run:
    """The run with what the bundle brings, and with what was sealed, so that kill lines can be asked."""
    for name, content in bundle.contents.items():
        write_whole(run.folder / name, content)
    for event in bundle.events:
        run.journal.write(event.kind, **event.facts)
    seed = bytes.fromhex((run.folder / "seed").read_text())
    intent = sha256_bytes((run.folder / "intent.dsse.json").read_bytes())
    return replace(run, seal=Sealed(plan, bundle.told.plan_digest, seed, intent))


def _require_whole(run: Run, bundle: Bundle, where: str) -> None:
    """Every boot in which anything is measured ended, or a kill line strikes on what was measured until then."""
    records = {boot.id: boot.planned for boot in bundle.boots}
    ended = {
        event.facts["planned"]
        for event in bundle.events
        if event.kind == "boot-ended" and records.get(event.facts["boot"]) == event.facts["planned"]
    }
    left = [name for name in to_measure(run.plan) if name not in ended]
    if left and run.plan.kill_lines and struck(reduce(run.with_outcome(boots=boot_records(run)))):
        return
    if left:
        found = f"nothing, or not the end, of {', '.join(left)}"
    elif nothing_answered(bundle.boots, run.plan):
        found = "no boot in which an engine answered"
    else:
        return
    raise InputError(
        "the bundle is not whole",
        where=where,
        expected="every boot of the plan",
        found=found,
        next_step="run ./measure again on that machine, or seal what there is with --partial",
    )


__all__ = ["open_bundle", "taken_in"]
