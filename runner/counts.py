"""Which reports count: those that ``verify`` accepts where they lie. Every reader of a workspace asks here.

A report is verified once for each ledger that was loaded. Its raw evidence is not read again for this: that is
``verify --deep``, and what ``adopt`` does before a person signs.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path

from runner import many
from runner.attest.statement import Signed
from runner.attest.trust import Trust
from runner.errors import CarveError
from runner.ledger import Ledger
from runner.model.adoption import Observation
from runner.model.boot import Label
from runner.model.report import ReportPredicate
from runner.verify import verify

_ALONE = 8
"""Up to so many reports are verified in this process."""


def refusal(entry: Signed, ledger: Ledger) -> str:
    """What ``verify`` says against a report; empty where it stands."""
    return refusals([entry], ledger).get(entry.digest, "")


def refusals(entries: Iterable[Signed], ledger: Ledger) -> dict[str, str]:
    """The reports among ``entries`` that ``verify`` refuses: digest to reason."""
    known, entries = ledger.refused, list(entries)
    asked = {entry.digest: entry.where for entry in entries if entry.digest not in known}
    answers = many.each(partial(_refusal, ledger.workspace, ledger.trust), list(asked.values()), alone=_ALONE)
    known.update(zip(asked, answers, strict=True))
    return {entry.digest: known[entry.digest] for entry in entries if known[entry.digest]}


def counting(ledger: Ledger) -> list[tuple[Signed, ReportPredicate]]:
    """Every report that counts, oldest first."""
    reports = ledger.of(ReportPredicate)
    refused = refusals((entry for entry, _ in reports), ledger)
    return [(entry, report) for entry, report in reports if entry.digest not in refused]


def answered_as(label: Label, seat: str, ledger: Ledger) -> bool:
    """Whether the seat ever answered under this label, in an observation or in a report that counts."""
    if any((each.seat, each.label) == (seat, label) for _, each in ledger.of(Observation)):
        return True
    told = ((entry, each.seat) for entry, each in ledger.of(ReportPredicate))
    return any(not refusal(entry, ledger) for entry, part in told if (part.name, part.label) == (seat, label))


def _refusal(workspace: Path, trust: Trust, where: str) -> str:
    try:
        verify(workspace / where, trust, workspace)
    except CarveError as error:
        return error.what + (f" ({error.found})" if error.found else "")
    return ""


__all__ = ["answered_as", "counting", "refusal", "refusals"]
