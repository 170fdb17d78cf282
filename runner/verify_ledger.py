"""What a report names in the ledger: the intent that was signed before it, and the challenge that it cites."""

from __future__ import annotations

from pathlib import Path

from runner.attest import dsse
from runner.attest.statement import Signed, moment, open_signed
from runner.attest.trust import Trust
from runner.digest import sha256_bytes
from runner.errors import TrustError
from runner.files import read_plain
from runner.ledger import LEDGER, SUFFIX
from runner.model.challenge import Challenge
from runner.model.report import ReportPredicate
from runner.verify_statement import same

FEWEST_EXPLOITS = 24
"""A challenge of fewer is none: the corpus had more from its first version on."""


def _statement(path: Path) -> bytes:
    """A signed file of the ledger. Raises TrustError where it cannot be one."""
    try:
        return read_plain(path, dsse.FILE_LIMIT)
    except OSError as error:
        raise TrustError("a signed file cannot be read", where=str(path), found=str(error.strerror)) from error


def intent_of(report: ReportPredicate, folder: Path, workspace: Path | None, trust: Trust) -> Signed:
    """The intent from the ledger, or from beside the report while it is still in its run folder.

    Raises TrustError where it is in neither, or another than the report names.
    """
    name = report.plan.intent + SUFFIX
    places = [folder / ("intent" + SUFFIX)]
    if workspace is not None:
        places.insert(0, workspace / LEDGER / name)
    for place in places:
        if place.is_file():
            data = _statement(place)
            same("the intent is another than the report names", report.plan.intent, sha256_bytes(data), str(place))
            return open_signed(data, trust, str(place))
    raise TrustError(
        "the report's intent is missing: nothing shows what was planned before the run",
        where=str(places[0]),
        expected=name,
        found="no such file",
        next_step="verify inside the workspace whose ledger has it, or with --workspace",
    )


def check_challenge(report: ReportPredicate, workspace: Path | None, trust: Trust, where: str) -> tuple[str, ...]:
    """Graders of the report that the challenge it cites did not try as they are; none where it cites none.

    Raises TrustError where that challenge is not in the ledger, is of another seat or of later, tried next to nothing,
    or lets a cheat through that it does not call open.
    """
    if report.challenge is None or workspace is None:
        return ()
    path = workspace / LEDGER / (report.challenge + SUFFIX)
    same("the challenge that the report cites is missing", True, path.is_file(), f"{where}, {path}")
    data = _statement(path)
    same("the challenge is another than the report names", report.challenge, sha256_bytes(data), str(path))
    signed = open_signed(data, trust, str(path))
    cited = signed.of(Challenge)
    same("the challenge is of another seat", report.seat.name, cited.seat, str(path))
    if signed.at > moment(report.created_at, where):
        raise TrustError("the challenge is newer than the report", where=where, found=str(path))
    through = [one.exploit for one in cited.tried if not one.caught_by and not one.open]
    different = len({one.exploit for one in cited.tried})
    if through or different < FEWEST_EXPLOITS:
        raise TrustError(
            "the challenge that the report cites was not passed",
            where=str(path),
            expected=f"{FEWEST_EXPLOITS} exploits or more, each noticed by something or listed as open",
            found=", ".join(through) or f"{different} exploits",
        )
    return tuple(sorted(name for name, digest in report.graders.items() if cited.graders.get(name) != digest))


__all__ = ["check_challenge", "intent_of"]
