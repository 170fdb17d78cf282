"""``canon/LNA-CANON.md``: a pure function of the signed statements of the repository.

No clock, no machine, no network: the text is the same wherever and whenever it is made. Its date is that of the newest
statement, and whatever expires or goes stale is judged as of that date.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

from runner.adoption import clears_itself, fault_of, revoked
from runner.attest.statement import Signed
from runner.attest.trust import Trust
from runner.canon_entry import open_items, standing_lines
from runner.decisions import Decided, current, decisions, displaced, in_force
from runner.errors import TrustError
from runner.files import write_whole
from runner.ledger import Ledger, load
from runner.lineage import about
from runner.many import collector_paused
from runner.markdown import run_link, table
from runner.measured import unpack
from runner.model.adoption import Adoption, Observation, Reproduction, Revocation, Waiver
from runner.model.report import ReportPredicate
from runner.model.verdict import Status
from runner.report import TEXT
from runner.report_text import render as report_text

CANON = Path("canon/LNA-CANON.md")


def _pending(ledger: Ledger, holding: list[Decided]) -> list[str]:
    """Reports about which no decision stands: what was taken back, or never counted, is as if it had never been."""
    decided = {each.entry.digest for each in holding}
    rows = [
        (
            report.order.name,
            _link(report),
            f"{report.seat.name} ({report.seat.label})",
            report.verdict,
            ", ".join(f"{gate.name} {gate.verdict}" for gate in report.gates if gate.verdict is not Status.PASS),
            ledger.tries.get(report.plan.intent, 1),
        )
        for entry, report in ledger.of(ReportPredicate)
        if entry.digest not in decided
    ]
    return table(("order", "run", "seat", "verdict", "gates that do not pass", "tries of this candidate"), rows)


def _link(report: ReportPredicate) -> str:
    return run_link(report.order.name, report.run)


def _observed(ledger: Ledger) -> list[str]:
    newest = {each.seat: each for _, each in ledger.of(Observation)}
    rows = [(seat, newest[seat].label, newest[seat].created_at) for seat in sorted(newest)]
    return table(("seat", "label", "observed at"), rows)


def _lessons(ledger: Ledger, holding: list[Decided]) -> list[str]:
    """Reports that did not pass, whatever became of them: what was found, and what a person said to it."""
    said = {each.entry.digest: each.adoption.reason for each in holding}
    rows = []
    for entry, report in ledger.of(ReportPredicate):
        found = [f"{gate.name} {gate.verdict}: {'; '.join(gate.reasons[:1])}" for gate in report.gates]
        bad = [words for words, gate in zip(found, report.gates, strict=True) if gate.verdict is not Status.PASS]
        if bad:
            seat = f"{report.seat.name} ({report.seat.label})"
            rows.append((report.order.name, _link(report), seat, bad[0], said.get(entry.digest, "")))
    return table(("order", "run", "seat", "first gate that did not pass", "what was decided"), rows)


def _deed(made: Adoption | Waiver | Revocation | Reproduction) -> tuple[str, str]:
    """What somebody did, and why."""
    if isinstance(made, Adoption):
        return made.result, made.reason
    if isinstance(made, Waiver):
        return f"waived {made.gate} until {made.expires_at}", made.reason
    if isinstance(made, Revocation):
        return f"took {made.revokes[:16]} back", made.reason
    return "run again", f"in run {made.again.run}"


def _history(ledger: Ledger) -> Iterator[tuple[object, ...]]:
    """Every decision that stands, and every reproduction, oldest first."""
    gone = revoked(ledger)
    for entry in ledger.oldest_first:
        made, by = entry.predicate, ", ".join(signer.principal for signer in entry.signers)
        if (
            entry.digest in gone
            or not isinstance(made, Adoption | Waiver | Reproduction)
            or _fault(entry, made, ledger)
        ):
            continue
        report = ledger.entries[made.report.digest].of(ReportPredicate)
        yield (made.created_at, *_deed(made), report.order.name, _link(report), by)


def _fault(entry: Signed, made: Adoption | Waiver | Revocation | Reproduction, ledger: Ledger) -> str:
    """Why a statement about another says nothing here: nobody vouches for what it is about, or it is dated back.

    Raises TrustError where that is not here at all: somebody has taken it away.
    """
    for digest in about(made):
        if digest in ledger.outsiders:
            return f"the key of {ledger.outsiders[digest].path.as_posix()} is not trusted here"
    if not isinstance(made, Revocation) and made.report.digest not in ledger.entries:
        where, expected = str(ledger.workspace), made.report.digest
        raise TrustError("a statement about a report that is not here", where=where, expected=expected)
    if isinstance(made, Reproduction):
        return ""
    own = clears_itself(made, entry.keys, ledger) if isinstance(made, Revocation) else ""
    return fault_of(made, ledger) or own


def _without_effect(ledger: Ledger) -> Iterator[tuple[object, ...]]:
    """Statements of people, and reproductions, that say nothing here, oldest first."""
    for entry in ledger.oldest_first:
        made, by = entry.predicate, ", ".join(signer.principal for signer in entry.signers)
        if isinstance(made, Adoption | Waiver | Revocation | Reproduction) and (fault := _fault(entry, made, ledger)):
            yield (made.created_at, *_deed(made), "" if isinstance(made, Revocation) else made.report.run, by, fault)


def render(ledger: Ledger) -> str:
    """The canon's text."""
    newest, made = ledger.newest, decisions(ledger)
    holding = in_force(made)
    stand, told = current(made, "standing"), current(made, "descriptive")
    shown = {each.signed.digest for each in (*stand, *told)}
    older = [each for each in holding if each.adopted and each.signed.digest not in shown]
    uncounted = [each for each in made if each.adopted and each.against]
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
        *(line for each in stand for line in standing_lines(each, ledger, displaced(made, each))),
        "## Descriptive: adopted for its figures, and stands nowhere",
        "",
        *(line for each in told for line in standing_lines(each, ledger)),
        "## Open items",
        "",
        *table(
            ("item", "owner", "until", "run"),
            [row for each in (*stand, *told) for row in open_items(each, ledger)],
        ),
        "## Pending: no decision stands",
        "",
        "Verdicts as their signers wrote them; `runner reports` says which of them `runner verify` refuses.",
        "",
        *_pending(ledger, holding),
        "## Rejected",
        "",
        *table(
            ("order", "run", "verdict", "rejected by", "reason"),
            [
                (each.report.order.name, each.link, each.report.verdict, each.by, each.adoption.reason)
                for each in holding
                if not each.adopted
            ],
        ),
        "## Lessons: reports that did not pass",
        "",
        *_lessons(ledger, holding),
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
        "## Statements without effect",
        "",
        *table(("at", "what", "why", "run", "by", "because"), _without_effect(ledger)),
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


def texts(ledger: Ledger) -> Iterator[tuple[Path, str]]:
    """Each text beside a report, to which the canon links, with what this checkout writes of what was signed."""
    for entry, _ in ledger.of(ReportPredicate):
        path = Path(entry.where).with_name(TEXT)
        if (ledger.workspace / path).is_file():
            report = ledger.whole(entry)
            yield path, report_text(report, unpack(report.record, entry.where)[0])


def altered(ledger: Ledger) -> list[str]:
    """Texts beside reports that are not what this checkout writes, each with its first line that differs."""
    found = ((path, _difference(ledger.workspace / path, text)) for path, text in texts(ledger))
    return [f"{path.as_posix()}{difference}" for path, difference in found if difference]


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
    difference = _difference(path, text)
    return f"{CANON}{difference}" if difference else ""


def _difference(path: Path, text: str) -> str:
    """Number and words of the first line of a file that is not ``text``'s; empty where it is the same to the byte."""
    found = path.read_bytes().decode(errors="replace")
    if found == text:
        return ""
    pairs = zip_longest(found.splitlines(), text.splitlines(), fillvalue="(nothing)")
    number, (is_, should) = next(
        ((at, pair) for at, pair in enumerate(pairs, 1) if pair[0] != pair[1]), (0, ("other line ends", ""))
    )
    return f":{number}: found {is_!r}, expected {should!r}"


__all__ = ["CANON", "altered", "differs", "generate", "render", "texts", "write"]
