"""``canon/LNA-CANON.md``: a pure function of the signed statements of the repository.

No clock, no machine, no network: the text is the same wherever and whenever it is made. Its date is that of the newest
statement, and whatever expires or goes stale is judged as of that date.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from runner.adoption import objections, revoked, stale, waivers_for
from runner.attest.statement import Signed, moment
from runner.errors import TrustError
from runner.files import write_whole
from runner.ledger import Ledger
from runner.markdown import cell, table
from runner.measured import unpack
from runner.model.adoption import Adoption, Observation
from runner.model.report import ReportPredicate
from runner.model.verdict import Status
from runner.summary import engagement_text

CANON = Path("canon/LNA-CANON.md")


@dataclass(frozen=True)
class _Decided:
    """A report with the decision that counts for it."""

    entry: Signed
    report: ReportPredicate
    adoption: Adoption
    by: str
    against: tuple[str, ...]
    """Why an ADOPTED does not count."""


def _decisions(ledger: Ledger) -> list[_Decided]:
    """The newest standing decision for each report, oldest first. Raises TrustError for a report that is not here."""
    gone = revoked(ledger)
    newest: dict[str, _Decided] = {}
    for signed, adoption in ledger.of(Adoption):
        if signed.digest in gone:
            continue
        entry = ledger.entries.get(adoption.report.digest)
        if entry is None:
            raise TrustError(
                "a decision about a report that is not here", where=signed.where, expected=adoption.report.digest
            )
        by = ", ".join(signer.principal for signer in signed.signers)
        against = objections(entry, adoption, {signer.key.id for signer in signed.signers}, ledger)
        newest[entry.digest] = _Decided(
            entry, entry.of(ReportPredicate), adoption, by, against if adoption.result == "ADOPTED" else ()
        )
    return list(newest.values())


def _launch(report: ReportPredicate, where: str) -> list[str]:
    """What the measured boots said of themselves, not what somebody typed."""
    measured, _ = unpack(report.record, where)
    if not measured.boots:
        return []
    boot = measured.boots[-1]
    arguments = [(name, boot.resolved[name]) for name in sorted(boot.resolved)]
    candidate = [sample for sample in measured.samples if sample.variant != "incumbent" and sample.engagement][-1:]
    proof = [
        (each.rank, sample.window, engagement_text(each.witness)) for sample in candidate for each in sample.engagement
    ]
    engine = f"{boot.engine.get('name', 'engine')} {boot.engine.get('version', '')}".strip()
    return [
        f"Served by {cell(engine)} on {len(boot.ranks)} rank(s) with {boot.kv_tokens} KV tokens.",
        f"Read back from boot {boot.id}:",
        "",
        *table(("setting", "live value"), arguments),
        *(["Proof that it ran:", ""] if proof else []),
        *table(("rank", "window", "witness counted"), proof),
    ]


def _open_waivers(decided: _Decided, ledger: Ledger, newest: str) -> list[str]:
    lines = []
    for entry, waiver in waivers_for(ledger, decided.entry.digest):
        if entry.digest in decided.adoption.waivers:
            over = moment(newest, entry.where) > moment(waiver.expires_at, entry.where)
            state = "EXPIRED" if over else "stands"
            lines.append(f"- waiver of {waiver.gate} until {waiver.expires_at} ({state}): {cell(waiver.reason)}")
    return [*lines, ""] if lines else []


def _standing(decided: _Decided, ledger: Ledger, newest: str) -> list[str]:
    report = decided.report
    changed = stale(decided.entry, ledger)
    figures = [
        (gate.name, gate.verdict, figure.name, f"{figure.value} {figure.unit}".strip(), figure.limit, report.run)
        for gate in report.gates
        for figure in gate.figures
    ]
    return [
        f"### {report.order.name} on {report.seat.name}",
        "",
        f"Run {report.run}, label {report.seat.label}, {decided.adoption.scope}; report {decided.entry.digest}.",
        f"Adopted by {decided.by} on {decided.adoption.created_at}: {cell(decided.adoption.reason)}",
        *([f"Stale since the newest observation of {report.seat.name}: {', '.join(changed)}"] if changed else []),
        "",
        *_open_waivers(decided, ledger, newest),
        *table(("gate", "verdict", "figure", "value", "limit", "run"), figures),
        *_launch(report, decided.entry.where),
    ]


def _pending(ledger: Ledger) -> list[str]:
    """Reports about which nobody ever decided; a decision taken back leaves its report out."""
    decided = {adoption.report.digest for _, adoption in ledger.of(Adoption)}
    rows = [
        (
            report.order.name,
            report.run,
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


def render(ledger: Ledger) -> str:
    """The canon's text."""
    newest = ledger.oldest_first[-1].predicate.created_at if ledger.oldest_first else ""
    decisions = _decisions(ledger)
    adopted = [each for each in decisions if each.adoption.result == "ADOPTED" and not each.against]
    latest = {(each.report.order.name, each.report.seat.name): each for each in adopted}
    standing = [each for each in adopted if latest[each.report.order.name, each.report.seat.name] is each]
    older = [each for each in adopted if each not in standing]
    rejected = [each for each in decisions if each.adoption.result == "REJECTED"]
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
        *(line for each in reversed(standing) for line in _standing(each, ledger, newest)),
        "## Pending: nobody has decided",
        "",
        *_pending(ledger),
        "## Rejected",
        "",
        *table(
            ("order", "run", "verdict", "rejected by", "reason"),
            [
                (each.report.order.name, each.report.run, each.report.verdict, each.by, each.adoption.reason)
                for each in rejected
            ],
        ),
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
            [(each.report.order.name, each.report.run, each.adoption.created_at, each.by) for each in older],
        ),
        "## Adoptions that do not count",
        "",
        *table(
            ("order", "run", "by", "because"),
            [
                (each.report.order.name, each.report.run, each.by, "; ".join(each.against))
                for each in decisions
                if each.against
            ],
        ),
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


__all__ = ["CANON", "differs", "render", "write"]
