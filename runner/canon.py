"""``canon/LNA-CANON.md``: a pure function of the signed statements of the repository.

No clock, no machine, no network: the text is the same wherever and whenever it is made. Its date is that of the newest
statement, and whatever expires or goes stale is judged as of that date.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path

from runner.adoption import objections, revoked
from runner.attest.trust import Trust
from runner.canon_entry import Decided, open_items, run_link, standing_lines
from runner.counts import refusals
from runner.errors import TrustError
from runner.files import write_whole
from runner.ledger import Ledger, load
from runner.many import collector_paused
from runner.markdown import table
from runner.model.adoption import Adoption, Observation, Reproduction, Waiver
from runner.model.report import ReportPredicate
from runner.model.verdict import Status

CANON = Path("canon/LNA-CANON.md")


def _decisions(ledger: Ledger) -> list[Decided]:
    """The newest standing decision for each report, oldest first. Raises TrustError for a report that is not here."""
    gone = revoked(ledger)
    newest: dict[str, Decided] = {}
    counted = (ledger.entries.get(each.report.digest) for _, each in ledger.of(Adoption) if each.result == "ADOPTED")
    refusals([entry for entry in counted if entry is not None], ledger)  # all at once, on every processor
    for signed, adoption in ledger.of(Adoption):
        if signed.digest in gone:
            continue
        entry = ledger.entries.get(adoption.report.digest)
        if entry is None:
            raise TrustError(
                "a decision about a report that is not here", where=signed.where, expected=adoption.report.digest
            )
        by = ", ".join(signer.principal for signer in signed.signers)
        keys = {signer.key.id for signer in signed.signers}
        against = objections(entry, adoption, keys, ledger) if adoption.result == "ADOPTED" else ()
        newest[entry.digest] = Decided(entry, entry.of(ReportPredicate), adoption, by, against)
    return list(newest.values())


def _current(decisions: list[Decided]) -> list[Decided]:
    """Of the adoptions that count, the newest for each order on each seat, newest first."""
    adopted = [each for each in decisions if each.adoption.result == "ADOPTED" and not each.against]
    latest = {(each.report.order.name, each.report.seat.name): each for each in adopted}
    return [each for each in reversed(adopted) if latest[each.report.order.name, each.report.seat.name] is each]


def standing(ledger: Ledger) -> list[Decided]:
    """What stands, newest first."""
    return _current(_decisions(ledger))


def previous(ledger: Ledger, adoption: str) -> Decided | None:
    """What would stand for the order and seat of an adoption (by its digest) if it were taken back."""
    given_back = ledger.entries[adoption].of(Adoption)
    entries = {digest: entry for digest, entry in ledger.entries.items() if digest != adoption}
    without = replace(ledger, entries=entries)
    fitting = [each for each in standing(without) if each.report.seat.name == given_back.seat]
    return next((each for each in fitting if each.report.order.name == given_back.report.order), None)


def _pending(ledger: Ledger) -> list[str]:
    """Reports about which no decision stands: what was taken back is as if it had never been."""
    gone = revoked(ledger)
    decided = {adoption.report.digest for entry, adoption in ledger.of(Adoption) if entry.digest not in gone}
    rows = [
        (
            report.order.name,
            run_link(report),
            f"{report.seat.name} ({report.seat.label})",
            report.verdict,
            ", ".join(f"{gate.name} {gate.verdict}" for gate in report.gates if gate.verdict is not Status.PASS),
            ledger.tries.get(report.plan.intent, 1),
        )
        for entry, report in ledger.of(ReportPredicate)
        if entry.digest not in decided
    ]
    return table(("order", "run", "seat", "verdict", "gates that do not pass", "tries of this candidate"), rows)


def _observed(ledger: Ledger) -> list[str]:
    newest = {each.seat: each for _, each in ledger.of(Observation)}
    rows = [(seat, newest[seat].label, newest[seat].created_at) for seat in sorted(newest)]
    return table(("seat", "label", "observed at"), rows)


def _lessons(ledger: Ledger, decisions: list[Decided]) -> list[str]:
    """Reports that did not pass, whatever became of them: what was found, and what a person said to it."""
    said = {each.entry.digest: each.adoption.reason for each in decisions}
    rows = []
    for entry, report in ledger.of(ReportPredicate):
        found = [f"{gate.name} {gate.verdict}: {'; '.join(gate.reasons[:1])}" for gate in report.gates]
        bad = [words for words, gate in zip(found, report.gates, strict=True) if gate.verdict is not Status.PASS]
        if bad:
            seat = f"{report.seat.name} ({report.seat.label})"
            rows.append((report.order.name, run_link(report), seat, bad[0], said.get(entry.digest, "")))
    return table(("order", "run", "seat", "first gate that did not pass", "what was decided"), rows)


def _deed(made: Adoption | Waiver | Reproduction) -> tuple[str, str]:
    """What somebody did, and why."""
    if isinstance(made, Adoption):
        return made.result, made.reason
    if isinstance(made, Waiver):
        return f"waived {made.gate} until {made.expires_at}", made.reason
    return "run again", f"in run {made.again.run}"


def _history(ledger: Ledger) -> Iterator[tuple[object, ...]]:
    """Every decision that stands, and every reproduction, oldest first."""
    gone = revoked(ledger)
    for entry in ledger.oldest_first:
        made, by = entry.predicate, ", ".join(signer.principal for signer in entry.signers)
        if entry.digest in gone or not isinstance(made, Adoption | Waiver | Reproduction):
            continue
        report = ledger.entries[made.report.digest].of(ReportPredicate)
        yield (made.created_at, *_deed(made), report.order.name, run_link(report), by)


def render(ledger: Ledger) -> str:
    """The canon's text."""
    newest = ledger.oldest_first[-1].predicate.created_at if ledger.oldest_first else ""
    decisions = _decisions(ledger)
    adopted = [each for each in decisions if each.adoption.result == "ADOPTED" and not each.against]
    current = _current(decisions)
    stand = {each.entry.digest for each in current}
    older = [each for each in adopted if each.entry.digest not in stand]
    rejected = [each for each in decisions if each.adoption.result == "REJECTED"]
    uncounted = [each for each in decisions if each.against]
    lines = [
        "# LNA canon",
        "",
        "Generated by `runner canon` from the signed statements of this repository: do not edit. A section without",
        "entries has none.",
        "",
        f"As of {newest or 'no date'}: when the newest statement was made.",
        "",
        "## Standing: adopted by a person",
        "",
        *(line for each in current for line in standing_lines(each, ledger, newest)),
        "## Open items",
        "",
        *table(
            ("item", "owner", "until", "run"),
            [row for each in current for row in open_items(each, ledger)],
        ),
        "## Pending: no decision stands",
        "",
        "Verdicts as their signers wrote them; `runner reports` says which of them `runner verify` refuses.",
        "",
        *_pending(ledger),
        "## Rejected",
        "",
        *table(
            ("order", "run", "verdict", "rejected by", "reason"),
            [
                (each.report.order.name, each.link, each.report.verdict, each.by, each.adoption.reason)
                for each in rejected
            ],
        ),
        "## Lessons: reports that did not pass",
        "",
        *_lessons(ledger, decisions),
        "## Abandoned: an intent that no report answers",
        "",
        *table(
            ("order", "run", "intended at", "intent"),
            [(intent.order, intent.run, intent.created_at, entry.digest[:16]) for entry, intent in ledger.abandoned()],
        ),
        "## Adopted earlier",
        "",
        *table(
            ("order", "run", "adopted at", "by"),
            [(each.report.order.name, each.link, each.adoption.created_at, each.by) for each in older],
        ),
        "## Adoptions that do not count",
        "",
        *table(
            ("order", "run", "by", "because"),
            [(each.report.order.name, each.link, each.by, "; ".join(each.against)) for each in uncounted],
        ),
        "## History: decisions that stand",
        "",
        *table(("at", "what", "why", "order", "run", "by"), _history(ledger)),
        "## Seats as last observed",
        "",
        *_observed(ledger),
        "## Files whose key this repository does not trust",
        "",
        *table(
            ("file", "key"),
            sorted((each.path.as_posix(), ", ".join(each.key_ids)) for each in ledger.outsiders.values()),
        ),
        "## Ledger heads that this text has seen",
        "",
        *(f"- {head}" for head in ledger.heads()),
    ]
    return "\n".join(lines).rstrip("\n") + "\n"


def generate(workspace: Path, trust: Trust) -> str:
    """The canon's text from the workspace's files. Raises TrustError as :func:`runner.ledger.load` does."""
    with collector_paused():
        return render(load(workspace, trust))


def write(workspace: Path, text: str) -> Path:
    """Put the text where it belongs; the path."""
    write_whole(workspace / CANON, text.encode())
    return workspace / CANON


def differs(workspace: Path, text: str) -> str:
    """Empty where the committed text is ``text``, else the first line that is not."""
    path = workspace / CANON
    if not path.is_file():
        return f"{CANON} does not exist"
    found = path.read_bytes().decode(errors="replace")
    if found == text:
        return ""
    pairs = zip_longest(found.splitlines(), text.splitlines(), fillvalue="(nothing)")
    number, (is_, should) = next(
        ((at, pair) for at, pair in enumerate(pairs, 1) if pair[0] != pair[1]), (0, ("other line ends", ""))
    )
    return f"{CANON}:{number}: found {is_!r}, expected {should!r}"


__all__ = ["CANON", "differs", "generate", "previous", "render", "standing", "write"]
