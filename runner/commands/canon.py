"""``canon``, ``card``, ``revert`` and ``reproduce``: what follows from what was signed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from runner.commands.decisions import RunName, desk_of
from runner.commands.output import AsJson, answer


def canon(
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Write nothing; exit 1 where the text is not current, or a report.md is not its report's."
        ),
    ] = False,
    texts: Annotated[
        bool, typer.Option("--texts", help="Also write every report.md anew, as this checkout words it.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Make canon/LNA-CANON.md from the signed statements."""
    from runner import canon, ledger
    from runner.attest.trust import load_trust
    from runner.files import write_whole
    from runner.many import collector_paused
    from runner.paths import workspace

    here = workspace()
    with collector_paused():
        book = ledger.load(here, load_trust(here, user=False))
        text = canon.render(book)
    difference, altered = canon.differs(here, text), canon.altered(book) if check else []
    if not check:
        canon.write(here, text)
    for path, told in canon.texts(book) if texts and not check else ():
        write_whole(here / path, told.encode())
    text = f"{canon.CANON} is current"
    if difference:
        text = f"{difference}\n  next step: `runner canon`" if check else f"written: {canon.CANON}"
    lines = [
        text,
        *altered,
        *(["  next step: `runner canon --texts`; what is signed is beside them"] if altered else []),
    ]
    value = {"path": str(here / canon.CANON), "difference": difference, "altered": altered, "written": not check}
    answer(value, "\n".join(lines), as_json=as_json)
    if check and (difference or altered):
        raise typer.Exit(1)


def revert(
    adoption: Annotated[str, typer.Argument(metavar="ADOPTION", help="Digest of the adoption, or its beginning.")],
    key: Annotated[str, typer.Option("--key", help="Take it back with this key; without one only show the way.")] = "",
    reason: Annotated[str, typer.Option("--reason", help="Why, for whoever reads the canon.")] = "",
    as_json: AsJson = False,
) -> None:
    """Show the launch of what stood before an adoption; with --key take the adoption back."""
    from runner import decide, ledger
    from runner.attest.trust import load_trust
    from runner.errors import InputError
    from runner.paths import workspace

    here = workspace()
    digest, text = decide.way_back(ledger.load(here, load_trust(here, user=False)), adoption)
    signed = ""
    if key:
        if not reason:
            raise InputError("a decision needs a reason", expected="--reason TEXT")
        signed = str(decide.revoke(desk_of(key), digest, reason))
        text = f"signed: {signed}\n{text}"
    answer({"adoption": digest, "statement": signed, "launch": text}, text, as_json=as_json)


def reproduce(
    run: RunName,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress on standard error.")] = False,
    as_json: AsJson = False,
) -> int:
    """Run a report's sealed plan again with a new seed and sign whether it came out the same."""
    from runner.commands.progress import watching
    from runner.paths import workspace
    from runner.reproduce import reproduce as run_again

    with watching(quiet=quiet or as_json) as progress:
        again = run_again(workspace(), run, progress)
    value = {"run": again.run, "exit_code": again.exit_code, "agrees": again.agrees, "statement": str(again.statement)}
    said = "the same verdict of every gate" if again.agrees else "other verdicts"
    answer(value, f"{said} in run {again.run}\nsigned: {again.statement}", as_json=as_json)
    return again.exit_code


def card(
    pack: Annotated[Path, typer.Argument(metavar="PACK", help="Folder of a pack.")],
    output: Annotated[Path | None, typer.Option("--output", help="Write the card here.")] = None,
    as_json: AsJson = False,
) -> None:
    """Write the pack's model card: composition from its headers, figures from what was adopted."""
    from runner import ledger
    from runner.attest.trust import load_trust
    from runner.card import render
    from runner.files import require_place, write_whole
    from runner.paths import workspace

    if output is not None:
        require_place(output, "a card")
    here = workspace()
    text = render(pack, ledger.load(here, load_trust(here, user=False)))
    if output is not None:
        write_whole(output, text.encode())
    answer(
        {"card": text, "path": str(output) if output else ""}, text if output is None else str(output), as_json=as_json
    )


def product(
    run: RunName,
    to: Annotated[Path | None, typer.Option("--to", help="Copy it into this new folder.")] = None,
    as_json: AsJson = False,
) -> None:
    """Where the pack that a run made lies, whether it is what the report sealed, and with --to a copy of it."""
    from runner.attest.trust import load_trust
    from runner.files import require_place
    from runner.paths import workspace
    from runner.take import take

    if to is not None and not to.exists():
        require_place(to, "a copy")
    here = workspace()
    taken = take(here, load_trust(here), run, to)
    lines = [f"run {taken.run}: {taken.verdict}", f"lies in {taken.folder}", "what was sealed, byte for byte"]
    lines += [f"  {name} {digest}" for name, digest in taken.digests.items()]
    lines += [f"not sealed by this report: {', '.join(taken.unsealed)}"] if taken.unsealed else []
    lines += [f"copied to {taken.to}"] if to else []
    answer(taken.model_dump(mode="json"), "\n".join(lines), as_json=as_json)


def register(app: typer.Typer) -> None:
    """Add this file's commands."""
    for command in (canon, revert, reproduce, card, product):
        app.command()(command)


__all__ = ["register"]
