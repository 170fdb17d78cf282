"""Try every known cheat on a seat with the present gates, and sign what became of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from runner import ledger
from runner.attest.keys import PrivateKey
from runner.attest.statement import sign
from runner.attest.trust import Trust
from runner.clock import now
from runner.digest import sha256_file
from runner.errors import EvidenceError, InputError
from runner.exploits.candidates import CONTROLS, ORDERS, run_candidate
from runner.exploits.corpus import CORPUS, Exploit, corpus
from runner.exploits.forgeries import refused
from runner.exploits.histories import noticed
from runner.exploits.honest import Honest, load
from runner.exploits.probes import got_through
from runner.exploits.readings import caught
from runner.ledger import LEDGER, Ledger
from runner.model.challenge import Challenge, Tried
from runner.model.report import ReportPredicate
from runner.model.verdict import Status
from runner.paths import command, source_root
from runner.sandbox import available
from runner.steps.seats import load_manifest
from runner.steps.state import Progress


def control_of(workspace: Path, seat: str, book: Ledger) -> Path:
    """The folder of the newest passing kernel report of the seat. Raises InputError where there is none."""
    passing = [
        report
        for _, report in book.of(ReportPredicate)
        if report.seat.name == seat and report.verdict is Status.PASS and report.seat.isolation != "no-candidate"
    ]
    if not passing:
        order = CONTROLS.get(seat, "an order of a kernel that passes")
        raise InputError(
            "nothing on this seat stands in for an honest candidate",
            where=seat,
            expected="a report of a kernel order that passes",
            found="none",
            next_step=command("execute", order, "--seat", seat),
        )
    return workspace / "reports" / passing[-1].order.name / passing[-1].run


def attempt(exploit: Exploit, honest: Honest, seat: str, progress: Progress) -> Tried:
    """One exploit on one seat. Raises as :func:`run_candidate`."""
    if exploit.kind == "open":
        return Tried(exploit=exploit.id, caught_by=(), open=exploit.reason)
    nothing = "the control measures nothing that this cheat would change"
    if exploit.kind == "reading":
        gates = caught(honest, exploit.id)
        return Tried(exploit=exploit.id, caught_by=tuple(gates or ()), open="" if gates is not None else nothing)
    if exploit.kind == "forgery":
        words = refused(honest, exploit.id)
        by = (f"verify: {words}",) if words else ()
        return Tried(exploit=exploit.id, caught_by=by, open="" if words is not None else nothing)
    if exploit.kind == "history":
        words = noticed(honest, exploit.id)
        return Tried(exploit=exploit.id, caught_by=(f"ledger: {words}",) if words else ())
    if exploit.kind == "probe":
        if available().tool == "none":
            return Tried(exploit=exploit.id, caught_by=(), open=available().reason)
        return Tried(exploit=exploit.id, caught_by=() if got_through(exploit.id, sandboxed=True) else ("sandbox",))
    if (exploit.id, seat) not in ORDERS:
        return Tried(exploit=exploit.id, caught_by=(), open=f"no order runs it on {seat}")
    return Tried(exploit=exploit.id, caught_by=run_candidate(exploit, seat, honest.workspace, honest.trust, progress))


def escaped(tried: Sequence[Tried], exploits: Sequence[Exploit]) -> tuple[str, ...]:
    """Exploits that what has to notice them did not notice."""
    answers = {one.exploit: one for one in tried}
    return tuple(
        exploit.id
        for exploit in exploits
        if not answers[exploit.id].open
        and not any(re.search(exploit.caught_by, found) for found in answers[exploit.id].caught_by)
    )


def concluded(honest: Honest, seat: str, tried: Sequence[Tried], heads: tuple[str, ...]) -> Challenge:
    """The statement about exploits that were tried against one honest report."""
    report = honest.statement["predicate"]
    return Challenge(
        created_at=now(),
        parents=heads,
        seat=seat,
        label=report["seat"]["label"],
        corpus=sha256_file(source_root() / CORPUS),
        control=honest.digest,
        graders=report["graders"],
        tried=tuple(tried),
    )


def challenge(workspace: Path, seat: str, trust: Trust, key: PrivateKey, progress: Progress) -> tuple[Challenge, Path]:
    """Try all, sign, and add to the ledger; the statement and its file.

    Raises InputError for an unknown seat and where it has no passing report, StateError where a cheat could not be
    tried, and EvidenceError, with nothing signed, where an exploit got past what has to notice it.
    """
    load_manifest(seat)  # its name alone: an unknown seat is said to be one
    honest = load(control_of(workspace, seat, ledger.load(workspace, trust)), workspace, trust)
    exploits, tried = corpus(), []
    for exploit in exploits:
        progress.begin(exploit.id, 1)
        tried.append(attempt(exploit, honest, seat, progress))
    if through := escaped(tried, exploits):
        raise EvidenceError(
            "cheats went unnoticed",
            where=seat,
            expected="every exploit noticed by what the corpus names, or listed as open",
            found=", ".join(through),
            next_step="mend the gate; until then no report of this seat proves much",
        )
    statement = concluded(honest, seat, tried, ledger.load(workspace, trust).heads())
    return statement, ledger.append(workspace, LEDGER, sign(statement, {"report": honest.digest}, key))


__all__ = ["attempt", "challenge", "concluded", "control_of", "escaped"]
