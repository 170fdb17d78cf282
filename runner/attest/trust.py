"""Who may sign what, and when: OpenSSH ``allowed_signers`` files.

A line is ``PRINCIPALS [OPTIONS] KEYTYPE BASE64 [COMMENT]``. The type is ``ssh-ed25519``, or
``sk-ssh-ed25519@openssh.com`` for a key in a hardware token. A principal is ``ROLE:NAME``; the role says which
statements the key may make (see :data:`ROLES`), so one line reads the same to ``ssh-keygen -Y verify -I ROLE:NAME``.
Options are ``namespaces`` (must name :data:`NAMESPACE` when present), ``valid-after`` and ``valid-before``, whose
times must end in ``Z``: without it OpenSSH reads the machine's own time zone, and trust would depend on where one
stands. Wildcards, certificate authorities and other key types are refused.

There are two sources: the repository's ``canon/allowed_signers`` speaks for everybody; the file beside the user's own
key speaks for this user only.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, get_args

from runner.attest.keys import NAME, PublicKey, key_folder
from runner.attest.sshsig import NAMESPACE
from runner.errors import InputError, TrustError
from runner.files import read_plain
from runner.hidden import first_hidden
from runner.visible import visible

Role = Literal["runner", "adopter"]
"""``runner`` signs intents, reports and seat observations; ``adopter`` signs what people decide."""

ROLES: tuple[Role, ...] = get_args(Role)

Source = Literal["repository", "user"]

_FILE_LIMIT = 1 << 20
"""Bytes."""
_PRINCIPAL = re.compile(rf"(?P<role>[a-z]+):(?P<name>{NAME})")
_OPTION = re.compile(r'(?P<name>[a-z-]+)(="(?P<value>[^"]*)")?')
_FIELDS = re.compile(r'(?:[^\s"]|"[^"]*")+')
_TIMES = ("%Y%m%dZ", "%Y%m%d%H%MZ", "%Y%m%d%H%M%SZ")


@dataclass(frozen=True)
class Signer:
    """One principal of one line."""

    role: Role
    name: str
    key: PublicKey
    source: Source
    valid_after: datetime | None = None
    valid_before: datetime | None = None
    where: str = ""
    """File and line that trust the key."""

    @property
    def principal(self) -> str:
        """As written: ``role:name``."""
        return f"{self.role}:{self.name}"

    def valid_at(self, moment: datetime) -> bool:
        """Both ends belong to the period, as in ``ssh-keygen -Y verify -O verify-time``."""
        return not (
            (self.valid_after is not None and moment < self.valid_after)
            or (self.valid_before is not None and moment > self.valid_before)
        )


def _time(text: str, where: str) -> datetime:
    for form in _TIMES:
        if len(text) == len(form.replace("%Y", "yyyy").replace("%", "x")):
            try:
                return datetime.strptime(text, form).replace(tzinfo=UTC)
            except ValueError:
                break
    raise InputError(
        "a time that means the same everywhere is needed",
        where=where,
        expected="YYYYMMDDZ, YYYYMMDDHHMMZ or YYYYMMDDHHMMSSZ",
        found=text,
    )


def _options(text: str, where: str) -> dict[str, datetime]:
    times: dict[str, datetime] = {}
    for part in re.findall(r'(?:[^,"]|"[^"]*")+', text):
        match = _OPTION.fullmatch(part)
        name, value = (match["name"], match["value"]) if match else ("", None)
        if name in times:
            raise InputError("an option twice", where=where, found=name)
        if name == "namespaces" and value is not None:
            if NAMESPACE not in value.split(","):
                raise InputError("a key for other purposes", where=where, expected=NAMESPACE, found=value)
        elif name in {"valid-after", "valid-before"} and value is not None:
            times[name] = _time(value, where)
        else:
            raise InputError(
                "an option that is not read here",
                where=where,
                expected='namespaces="…", valid-after="…" or valid-before="…"',
                found=part,
            )
    return times


def _line(text: str, source: Source, where: str) -> Iterable[Signer]:
    fields = _FIELDS.findall(text)
    at = next((index for index, field in enumerate(fields) if field.startswith(("ssh-", "ecdsa-", "sk-"))), -1)
    if at not in (1, 2) or len(fields) < at + 2:
        raise InputError(
            "not a line of an allowed_signers file",
            where=where,
            expected="ROLE:NAME [options] ssh-ed25519 BASE64",
            found=text[:80],
        )
    times = _options(fields[1], where) if at == 2 else {}
    key = PublicKey.from_openssh(" ".join(fields[at : at + 2]), where)
    for principal in fields[0].strip('"').split(","):
        match = _PRINCIPAL.fullmatch(principal)
        role = next((role for role in ROLES if match and match["role"] == role), None)
        if match is None or role is None:
            raise InputError(
                "not a principal with a role",
                where=where,
                expected=" or ".join(f"{role}:NAME" for role in ROLES),
                found=principal,
            )
        yield Signer(role, match["name"], key, source, times.get("valid-after"), times.get("valid-before"), where)


def read_signers(text: str, source: Source, where: str) -> tuple[Signer, ...]:
    """Every signer of an ``allowed_signers`` text. Raises InputError naming file and line."""
    found: list[Signer] = []
    for number, raw in enumerate(text.split("\n"), 1):
        line = raw.removesuffix("\r").strip(" \t")
        if (at := first_hidden(line)) is not None:
            raise InputError(
                "a line that does not read as it looks",
                where=f"{where}:{number}",
                expected="no control character, and lines that end with a line feed",
                found=f"U+{ord(line[at]):04X}",
            )
        if line and not line.startswith("#"):
            found.extend(_line(line, source, f"{where}:{number}"))
    return tuple(found)


@dataclass(frozen=True)
class Trust:
    """The signers that count, the repository's first."""

    signers: tuple[Signer, ...]

    def key(self, key_id: str) -> PublicKey | None:
        """The public key of an id, whatever its role; for checking a signature, not for believing it."""
        return next((signer.key for signer in self.signers if signer.key.id == key_id), None)

    def ended(self, key_id: str, role: Role, moment: datetime) -> str:
        """Until when the repository trusts a key that it knows in this role and that is over at ``moment``; else empty.

        What such a key signs then is refused with the whole ledger it lies in, though its own user trusts it still.
        """
        known = [one for one in self.signers if (one.key.id, one.role, one.source) == (key_id, role, "repository")]
        if not known or any(one.valid_at(moment) for one in known):
            return ""
        return ", ".join(f"{one.valid_before.isoformat()} ({one.where})" for one in known if one.valid_before)

    def signer(self, key_id: str, roles: tuple[Role, ...], moment: datetime, where: str) -> Signer:
        """Who stood behind ``key_id`` at ``moment``, the time that the statement itself bears.

        Raises TrustError where the key is unknown, has another role or was not valid then.
        """
        known = [signer for signer in self.signers if signer.key.id == key_id]
        fitting = [signer for signer in known if signer.role in roles]
        for signer in fitting:
            if signer.valid_at(moment):
                return signer
        if fitting:
            what, found = (
                "the key was not valid when this was signed",
                f"{fitting[0].principal} at {moment.isoformat()}",
            )
        elif known:
            what, found = "the key has another role", known[0].principal
        else:
            what, found = "signed by a key that nobody here trusts", visible(key_id)
        expected = f"a valid key with the role {' or '.join(roles)}"
        next_step = "a line in allowed_signers for the time the file bears lets it count; else take the file out"
        raise TrustError(what, where=where, expected=expected, found=found, next_step=next_step if fitting else "")


def user_file() -> Path:
    """This user's own trust file, beside the key."""
    return key_folder() / "allowed_signers"


def repository_file(workspace: Path) -> Path:
    """The committed trust root."""
    return workspace / "canon" / "allowed_signers"


def load_trust(workspace: Path | None, *, user: bool = True) -> Trust:
    """Both sources, or the repository's alone with ``user=False``. A file that does not exist trusts nobody."""
    files: list[tuple[Source, Path]] = []
    if workspace is not None:
        files.append(("repository", repository_file(workspace)))
    if user:
        files.append(("user", user_file()))
    signers: list[Signer] = []
    for source, path in files:
        if os.path.lexists(path):
            signers.extend(read_signers_file(path, source))
    return Trust(tuple(signers))


def read_signers_file(path: Path, source: Source) -> tuple[Signer, ...]:
    """Every signer of a file. Raises InputError for one that is no plain text.

    The repository's is no link: what it shows would lie elsewhere, and another machine would trust others.
    """
    return read_signers(_text(path, links=source == "user"), source, str(path))


def _text(path: Path, *, links: bool) -> str:
    try:
        return read_plain(path, _FILE_LIMIT, links=links).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            "the file of signers cannot be read",
            where=str(path),
            expected="a plain file of UTF-8 text",
            found=getattr(error, "strerror", None) or str(error),
        ) from error


def signer_line(role: Role, name: str, key: PublicKey, *, valid_before: datetime | None = None) -> str:
    """A line for an ``allowed_signers`` file. Raises InputError for a name that is no principal."""
    if not _PRINCIPAL.fullmatch(f"{role}:{name}"):
        raise InputError("not a name for a key", found=name, expected="letters, digits, dots, dashes, underscores, @")
    options = f'namespaces="{NAMESPACE}"'
    if valid_before is not None:
        options += f',valid-before="{valid_before.astimezone(UTC):%Y%m%d%H%M%SZ}"'
    return f"{role}:{name} {options} {key.openssh}"


def trust_key(path: Path, line: str) -> bool:
    """Append ``line`` to a trust file unless it stands there already; whether it was added."""
    text = _text(path, links=True) if path.exists() else ""
    if line in text.split("\n"):
        return False
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as stream:
        stream.write(("" if not text or text.endswith("\n") else "\n") + line + "\n")
    return True


__all__ = [
    "NAMESPACE",
    "ROLES",
    "Role",
    "Signer",
    "Source",
    "Trust",
    "load_trust",
    "read_signers",
    "read_signers_file",
    "repository_file",
    "signer_line",
    "trust_key",
    "user_file",
]
