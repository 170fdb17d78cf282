"""``adopt``, ``reject``, ``waive``, ``revoke``, ``canon`` and ``keys``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from pathlib import Path

    from runner.attest.keys import PrivateKey
    from runner.decide import Desk

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Key = Annotated[str, typer.Option("--key", help="Name of one of your keys, or the path of a private key file.")]
Reason = Annotated[str, typer.Option("--reason", help="Why, for whoever reads the canon.")]
RunName = Annotated[str, typer.Argument(metavar="RUN", help="Name of the run.")]


def _key(name: str) -> PrivateKey:
    from pathlib import Path

    from runner.attest.keys import key_folder, load

    path = Path(name) if "/" in name else key_folder() / name
    return load(path, lambda: str(typer.prompt("Passphrase", hide_input=True)).encode())


def _desk(key: str) -> Desk:
    from runner.decide import Desk
    from runner.paths import workspace

    return Desk.open(workspace(), _key(key))


def _say(path: Path, json: bool) -> None:
    import json as format_json

    typer.echo(format_json.dumps({"statement": str(path)}) if json else f"signed: {path}")


def _adopt(
    *,
    run: RunName,
    key: Key,
    reason: Reason,
    seat: Annotated[str | None, typer.Option(help="Seat it is adopted for; its own by default.")] = None,
    descriptive: Annotated[bool, typer.Option(help="Record its figures without making them standing.")] = False,
    json: Json = False,
) -> None:
    """Take a report into the canon with your own signature."""
    from runner import decide

    _say(decide.adopt(_desk(key), run, reason, seat=seat, descriptive=descriptive), json)


def _reject(run: RunName, key: Key, reason: Reason, json: Json = False) -> None:
    """Decline a report; it stays listed with your reason."""
    from runner import decide

    _say(decide.reject(_desk(key), run, reason), json)


def _waive(
    *,
    run: RunName,
    gate: Annotated[str, typer.Argument(help="Gate that did not pass.")],
    key: Key,
    reason: Reason,
    until: Annotated[str, typer.Option(help="Last moment it stands, for example 2027-01-31T00:00:00Z.")],
    json: Json = False,
) -> None:
    """Let one gate of one report stand open until a day."""
    from runner import decide

    _say(decide.waive(_desk(key), run, gate, reason, until), json)


def _revoke(
    decision: Annotated[str, typer.Argument(help="Digest of an adoption, rejection or waiver, or its beginning.")],
    key: Key,
    reason: Reason,
    json: Json = False,
) -> None:
    """Take a decision back."""
    from runner import decide

    _say(decide.revoke(_desk(key), decision, reason), json)


def _canon(
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; exit 1 where the text is not current.")
    ] = False,
    json: Json = False,
) -> None:
    """Make canon/LNA-CANON.md from the signed statements of this repository."""
    import json as format_json

    from runner import canon, ledger
    from runner.attest.trust import load_trust
    from runner.paths import workspace

    here = workspace()
    text = canon.render(ledger.load(here, load_trust(here, user=False)))
    difference = canon.differs(here, text)
    if not check:
        canon.write(here, text)
    if json:
        typer.echo(format_json.dumps({"path": str(here / canon.CANON), "difference": difference, "written": not check}))
    elif difference:
        typer.echo(difference if check else f"written: {canon.CANON}")
    else:
        typer.echo(f"{canon.CANON} is current")
    if check and difference:
        raise typer.Exit(1)


def _init(
    name: Annotated[str, typer.Argument(help="What the key is called.")] = "runner",
    json: Json = False,
) -> None:
    """Make an Ed25519 key under your configuration folder (mode 0600)."""
    import json as format_json

    from runner.attest.keys import create, key_folder

    key = create(name)
    path = key_folder() / name
    typer.echo(format_json.dumps({"id": key.public.id, "path": str(path)}) if json else f"{key.public.id}  {path}")


def _trust(
    *,
    name: Annotated[str, typer.Argument(help="Name of one of your keys, or the path of a .pub file.")],
    role: Annotated[str, typer.Option(help="runner (signs reports) or adopter (signs decisions).")] = "runner",
    principal: Annotated[
        str | None, typer.Option("--as", help="Name it is known by; the key's own by default.")
    ] = None,
    repository: Annotated[bool, typer.Option(help="Trust it for everybody: canon/allowed_signers.")] = False,
    until: Annotated[
        str | None, typer.Option(help="Last moment it is valid, for example 2027-01-31T00:00:00Z.")
    ] = None,
    json: Json = False,
) -> None:
    """Trust a public key: for yourself, or with --repository for everybody."""
    import json as format_json
    from pathlib import Path

    from runner.attest.keys import PublicKey, key_folder
    from runner.attest.statement import moment
    from runner.attest.trust import ROLES, repository_file, signer_line, trust_key, user_file
    from runner.errors import InputError
    from runner.paths import workspace

    known = next((each for each in ROLES if each == role), None)
    if known is None:
        raise InputError("no such role", expected=" or ".join(ROLES), found=role)
    path = Path(name) if "/" in name else key_folder() / f"{name}.pub"
    if not path.is_file():
        raise InputError("no public key to read", where=str(path), next_step="`runner keys init NAME` makes one")
    key = PublicKey.from_openssh(path.read_text(encoding="utf-8").strip(), str(path))
    end = moment(until, "--until") if until else None
    target = repository_file(workspace()) if repository else user_file()
    added = trust_key(target, signer_line(known, principal or path.stem, key, valid_before=end))
    done = "trusted" if added else "was trusted already"
    result = {"id": key.id, "file": str(target), "added": added}
    typer.echo(format_json.dumps(result) if json else f"{key.id} {done} in {target}")


def _list(json: Json = False) -> None:
    """List your own keys and everybody who is trusted here."""
    import json as format_json

    from runner.attest.keys import PublicKey, key_folder
    from runner.attest.trust import load_trust
    from runner.errors import InputError
    from runner.paths import workspace

    try:
        here = workspace()
    except InputError:
        here = None
    own = [
        {"name": path.stem, "id": PublicKey.from_openssh(path.read_text(encoding="utf-8").strip(), str(path)).id}
        for path in sorted(key_folder().glob("*.pub"))
    ]
    trusted = [
        {
            "principal": signer.principal,
            "id": signer.key.id,
            "source": signer.source,
            "valid_after": signer.valid_after.isoformat() if signer.valid_after else None,
            "valid_before": signer.valid_before.isoformat() if signer.valid_before else None,
        }
        for signer in load_trust(here).signers
    ]
    if json:
        typer.echo(format_json.dumps({"own": own, "trusted": trusted}))
        return
    for each in own:
        typer.echo(f"own      {each['name']}  {each['id']}")
    for line in trusted:
        until = f"  until {line['valid_before']}" if line["valid_before"] else ""
        typer.echo(f"trusted  {line['principal']}  {line['id']}  by {line['source']}{until}")


def register(app: typer.Typer) -> None:
    """Add this file's commands."""
    app.command("adopt")(_adopt)
    app.command("reject")(_reject)
    app.command("waive")(_waive)
    app.command("revoke")(_revoke)
    app.command("canon")(_canon)
    keys = typer.Typer(help="Your keys and whom you trust.", no_args_is_help=True)
    keys.command("init")(_init)
    keys.command("trust")(_trust)
    keys.command("list")(_list)
    app.add_typer(keys, name="keys")


__all__ = ["register"]
