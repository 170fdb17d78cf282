"""``adopt``, ``reject``, ``waive``, ``revoke`` and ``keys``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from runner.commands.output import AsJson, answer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from runner.attest.dsse import SigningKey
    from runner.decide import Desk

Key = Annotated[
    str,
    typer.Option(
        "--key",
        help="Name of one of your keys, the path of a private key file, or of a .pub file that ssh-keygen signs for "
        "(a key in an agent or a hardware token).",
    ),
]
Reason = Annotated[str, typer.Option("--reason", help="Why, for whoever reads the canon.")]
RunName = Annotated[str, typer.Argument(metavar="RUN", help="Name of the run.")]


def _key(name: str) -> SigningKey:
    from pathlib import Path

    from runner.attest.keys import key_folder, load
    from runner.attest.sshsig import SshKey

    if name.endswith(".pub"):
        return SshKey.load(Path(name))
    path = Path(name) if "/" in name else key_folder() / name
    return load(path, lambda: str(typer.prompt("Passphrase", hide_input=True)).encode())


def desk_of(key: str, note: Callable[[str], None] = lambda text: None) -> Desk:
    """The desk of whoever holds the key; ``note`` takes what was done on the way."""
    from runner.decide import Desk
    from runner.paths import workspace

    return Desk.open(workspace(), _key(key), note=note)


def _say(path: Path, as_json: bool) -> None:
    answer({"statement": str(path)}, f"signed: {path}", as_json=as_json)


def _adopt(
    *,
    run: RunName,
    key: Key,
    reason: Reason,
    seat: Annotated[str | None, typer.Option(help="Seat it is adopted for; its own by default.")] = None,
    descriptive: Annotated[bool, typer.Option(help="Record its figures without making them standing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Take a report into the canon with your own signature."""
    from runner import decide

    notes: list[str] = []
    path = decide.adopt(desk_of(key, notes.append), run, reason, seat=seat, descriptive=descriptive)
    evidence = "; ".join(notes)
    answer({"statement": str(path), "evidence": evidence}, f"{evidence}\nsigned: {path}", as_json=as_json)


def _reject(run: RunName, key: Key, reason: Reason, as_json: AsJson = False) -> None:
    """Decline a report; it stays listed with your reason."""
    from runner import decide

    _say(decide.reject(desk_of(key), run, reason), as_json)


def _waive(
    *,
    run: RunName,
    gate: Annotated[str, typer.Argument(metavar="GATE", help="Gate that did not pass.")],
    key: Key,
    reason: Reason,
    until: Annotated[str, typer.Option(help="Last moment it stands, for example 2027-01-31T00:00:00Z.")],
    as_json: AsJson = False,
) -> None:
    """Let one gate of one report stand open until a moment."""
    from runner import decide
    from runner.clock import given

    _say(decide.waive(desk_of(key), run, gate, reason, given(until, "--until")), as_json)


def _revoke(
    decision: Annotated[
        str, typer.Argument(metavar="DECISION", help="Digest of an adoption, rejection or waiver, or its beginning.")
    ],
    key: Key,
    reason: Reason,
    as_json: AsJson = False,
) -> None:
    """Take a decision back."""
    from runner import decide

    _say(decide.revoke(desk_of(key), decision, reason), as_json)


def _init(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What the key is called.")] = "runner",
    as_json: AsJson = False,
) -> None:
    """Make an Ed25519 key under your configuration folder (mode 0600)."""
    from runner.attest.keys import create, key_folder

    key = create(name)
    path = key_folder() / name
    answer({"id": key.public.id, "path": str(path)}, f"{key.public.id}  {path}", as_json=as_json)


def _trust(
    *,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of one of your keys, or the path of a .pub file.")],
    role: Annotated[str, typer.Option(help="runner (signs reports) or adopter (signs decisions).")] = "runner",
    principal: Annotated[
        str | None, typer.Option("--as", help="Name it is known by; the key's own by default.")
    ] = None,
    repository: Annotated[bool, typer.Option(help="Trust it for everybody: canon/allowed_signers.")] = False,
    until: Annotated[
        str | None, typer.Option(help="Last moment it is valid, for example 2027-01-31T00:00:00Z.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Trust a public key: for yourself, or with --repository for everybody."""
    from pathlib import Path

    from runner.attest.keys import PublicKey, key_folder
    from runner.attest.statement import moment
    from runner.attest.trust import ROLES, repository_file, signer_line, trust_key, user_file
    from runner.clock import given
    from runner.errors import InputError
    from runner.paths import workspace

    known = next((each for each in ROLES if each == role), None)
    if known is None:
        raise InputError("no such role", where="--role", expected=" or ".join(ROLES), found=role)
    path = Path(name) if "/" in name else key_folder() / f"{name}.pub"
    if not path.is_file():
        raise InputError(
            "no public key to read",
            where=str(path),
            expected="the name of one of your keys, or the path of a .pub file",
            found=name,
            next_step="`runner keys list` shows yours; `runner keys init NAME` makes one",
        )
    key = PublicKey.from_openssh(path.read_text(encoding="utf-8").strip(), str(path))
    end = moment(given(until, "--until"), "--until") if until is not None else None
    target = repository_file(workspace()) if repository else user_file()
    added = trust_key(target, signer_line(known, principal or path.stem, key, valid_before=end))
    done = "trusted" if added else "was trusted already"
    value = {"id": key.id, "file": str(target), "added": added}
    answer(value, f"{key.id} {done} in {target}", as_json=as_json)


def _list(as_json: AsJson = False) -> None:
    """List your own keys and everybody who is trusted here."""
    from runner.attest.keys import PublicKey, key_folder
    from runner.attest.trust import load_trust
    from runner.paths import workspace_around

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
        for signer in load_trust(workspace_around()).signers
    ]
    lines = [f"own      {each['name']}  {each['id']}" for each in own]
    for each in trusted:
        until = f"  until {each['valid_before']}" if each["valid_before"] else ""
        lines.append(f"trusted  {each['principal']}  {each['id']}  by {each['source']}{until}")
    answer({"own": own, "trusted": trusted}, "\n".join(lines) or "no keys", as_json=as_json)


def register(app: typer.Typer) -> None:
    """Add this file's commands."""
    app.command("adopt")(_adopt)
    app.command("reject")(_reject)
    app.command("waive")(_waive)
    app.command("revoke")(_revoke)
    keys = typer.Typer(help="Your keys and whom you trust.", no_args_is_help=True)
    keys.command("init")(_init)
    keys.command("trust")(_trust)
    keys.command("list")(_list)
    app.add_typer(keys, name="keys")


__all__ = ["RunName", "desk_of", "register"]
