"""``reports``, ``review`` and ``verify``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from runner.commands.output import AsJson, answer, print_table
from runner.visible import told, visible

if TYPE_CHECKING:
    from runner.verify import Verification


Signers = Annotated[
    Path | None,
    typer.Option("--trust", "--allowed-signers", help="Trust this file of signers and no other."),
]


def _reports(
    rejected: Annotated[bool, typer.Option("--rejected", help="Only those that a person declined.")] = False,
    pending: Annotated[
        bool, typer.Option("--pending", help="Only those about which no decision stands, one taken back included.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List reports, what became of them, and abandoned intents. Each is verified; one that is refused says why."""
    from rich.table import Table

    from runner import ledger
    from runner.attest.trust import load_trust
    from runner.listing import list_reports
    from runner.paths import workspace
    from runner.review.text import Text
    from runner.session import runs

    here = workspace()
    book = ledger.load(here, load_trust(here))
    wanted = {"rejected"} if rejected else set()
    wanted |= {"pending", "revoked"} if pending else set()
    listed = [each for each in list_reports(book) if not wanted or each.state in wanted]
    going = {one.run for one in runs() if one.at_work}
    at_work = {"verdict": "RUNNING", "state": "running"}
    listed = [
        each.model_copy(update=at_work) if each.state == "abandoned" and each.run in going else each for each in listed
    ]
    if as_json:
        answer([each.model_dump(mode="json") for each in listed], "", as_json=True)
        return
    rows = [
        (each.run, each.order, each.seat, each.verdict, each.state, str(each.tries), each.reason) for each in listed
    ]
    table = Table(box=None, pad_edge=False)
    for heading in ("run", "order", "seat", "verdict", "state", "tries", "reason"):
        table.add_column(heading, no_wrap=heading != "reason")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    print_table(table)


def _review(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Name of a run, or the path of a report.")],
    signers: Signers = None,
    html: Annotated[Path | None, typer.Option(help="Write one self-contained page here.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show one report: verdicts, pairs, what ran. It is verified first."""
    from rich.console import Console

    from runner import ledger
    from runner.adoption import waivers_for
    from runner.attest.dsse import UnknownKeyError
    from runner.files import require_place, write_whole
    from runner.ledger import Ledger
    from runner.measured import unpack
    from runner.paths import workspace
    from runner.review import page, terminal
    from runner.roots import forget, root_of
    from runner.verify import read_report, verify

    if html is not None:
        require_place(html, "a page")
    path = Path(run)
    if not path.exists():
        path = ledger.find_report(workspace(), run)
    forget()
    root = root_of(path, signers=signers)
    try:
        verify(path, root.trust, root.ledger)
    except UnknownKeyError as error:
        raise root.hint(error, path) from None
    entry, report, _ = read_report(path, root.trust)
    measured, _ = unpack(report.record, entry.where)
    book = ledger.load(root.ledger, root.trust) if root.ledger else Ledger()
    tries = book.tries.get(report.plan.intent, 1)
    waivers = waivers_for(book, entry.digest)
    if html is not None:
        write_whole(html, page.render(entry, measured, tries, waivers).encode())
    if as_json:
        content = report.model_dump(mode="json", exclude={"record"})
        answer({**content, "tries": tries, "record": measured.model_dump(mode="json")}, "", as_json=True)
    elif html is not None:
        typer.echo(f"page: {visible(str(html))}")
    else:
        terminal.show(Console(), entry, measured, tries, waivers)


def _verify(
    *,
    paths: Annotated[list[Path], typer.Argument(metavar="PATH", help="Reports, their folders, or a folder of many.")],
    deep: Annotated[bool, typer.Option("--deep", help="Read samples again from kept evidence.")] = False,
    require: Annotated[str | None, typer.Option(help="pass: exit 1 or 2 unless every gate passed.")] = None,
    signers: Signers = None,
    workspace: Annotated[
        Path | None, typer.Option(help="Workspace that is trusted and whose ledger has the intents.")
    ] = None,
    runs: Annotated[
        Path | None, typer.Option(help="Folder of run folders with full evidence, for --deep; your own by default.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check that reports are authentic and follow from themselves. No network, no seat, no GPU."""
    from runner.errors import CarveError, InputError
    from runner.model.verdict import Status
    from runner.paths import RUNS, state_home
    from runner.verify_many import verify_many

    if require not in (None, "pass"):
        raise InputError("no such requirement", where="--require", expected="pass", found=str(require))
    code, answers = 0, []
    if runs is not None and not runs.is_dir():
        wanted = "a folder that holds run folders"
        raise InputError("no folder of runs", where="--runs", expected=wanted, found=str(runs))
    full = (runs or state_home() / RUNS) if deep else None
    for path, found in verify_many(paths, workspace, signers=signers, deep=deep, runs=full):
        if isinstance(found, CarveError):
            code = max(code, found.exit_code)
            answers.append({"path": str(path), "error": str(found)})
            if not as_json:
                typer.echo(f"REFUSED {visible(str(path))}\n{told(found)}", err=True)
            continue
        answers.append(found.model_dump(mode="json"))
        if require == "pass":
            code = max(code, found.verdict.exit_code)
        if deep and found.needs_full_evidence:
            code = max(code, Status.NOT_RUN.exit_code)  # what could not be read again was not checked
        if not as_json:
            typer.echo(_sentence(found))
    if as_json:
        answer(answers, "", as_json=True)
    raise typer.Exit(code)


_WHOSE = {"repository": " (for everybody with that repository)", "user": " (a file of yours, or named by you)"}


def _sentence(found: Verification) -> str:
    from runner.clock import now
    from runner.decide import read_again

    signers = zip(found.signers, found.trusted_by, strict=True)
    lines = [
        f"authentic: {found.path}",
        f"  order {found.order}, run {found.run}, seat {found.seat} ({found.label})",
        f"  verdict {found.verdict}: " + ", ".join(f"{gate} {status}" for gate, status in found.gates.items()),
        *(f"  signed by {who}, trusted by {file}{_WHOSE[found.trust]}" for who, file in signers),
        *(f"  withdrawn since: {gate}: {reason}" for gate, reason in found.withdrawn.items()),
        *(f"  self-test: gate {case} is no case of this checkout: shown its own" for case in found.unknown_cases),
        *_challenged(found),
        f"  evidence: {found.kept} files checked, {len(found.not_kept)} not kept",
    ]
    if found.created_at > now():
        lines.append(f"  dated {found.created_at}, which is still to come on this machine's clock")
    if found.text != "same":
        lines.append(f"  report.md is {found.text}: it was never signed; read `runner review` instead")
    if found.replayed or found.replayed_drawn or found.needs_full_evidence:
        lines.append(f"  {read_again(found)}")
    if found.needs_full_evidence:
        lines.append(f"  need the full evidence: {', '.join(found.needs_full_evidence)}")
    return "\n".join(map(visible, lines))


def _challenged(found: Verification) -> list[str]:
    """What the challenge that the report cites leaves unsaid."""
    if not found.unchallenged:
        return []
    return [f"  the challenge it cites did not try these graders as they are: {', '.join(found.unchallenged)}"]


def register(app: typer.Typer) -> None:
    """Add this file's commands."""
    app.command("reports")(_reports)
    app.command("review")(_review)
    app.command("verify")(_verify)


__all__ = ["register"]
