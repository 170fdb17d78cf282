"""Ed25519 keys in OpenSSH format, under the user's configuration folder and never in a workspace."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import stat
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_ssh_private_key,
    load_ssh_public_key,
)

from runner.errors import InputError, TrustError
from runner.paths import KEYS, config_home

FILE_KEY, TOKEN_KEY = "ssh-ed25519", "sk-ssh-ed25519@openssh.com"
"""Key types: in a file, and in a hardware token (FIDO)."""


NAME = r"[A-Za-z0-9][A-Za-z0-9._@-]*"
"""What a key or whoever holds it may be called: what a line of an allowed_signers file can hold."""


def ssh_string(data: bytes) -> bytes:
    """A string of the SSH wire format: 4 bytes of length, then the bytes (RFC 4251, section 5)."""
    return len(data).to_bytes(4, "big") + data


class Reader:
    """The SSH wire format from the front. Every method raises ValueError where bytes are missing."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def take(self, count: int) -> bytes:
        """The next ``count`` bytes."""
        if count > len(self._data) - self._at:
            raise ValueError("cut short")
        self._at += count
        return self._data[self._at - count : self._at]

    def string(self) -> bytes:
        """The next string."""
        return self.take(int.from_bytes(self.take(4), "big"))

    def rest(self) -> bytes:
        """All that is left."""
        return self.take(len(self._data) - self._at)


@dataclass(frozen=True)
class PublicKey:
    """One Ed25519 public key, as a line of an ``authorized_keys`` file names it."""

    raw: bytes
    """32 bytes."""
    application: str = ""
    """Of a key in a hardware token what it was made for, ``ssh:``; empty for a key in a file."""

    @classmethod
    def from_openssh(cls, line: str, where: str) -> PublicKey:
        """Read ``ssh-ed25519 BASE64 [comment]`` or ``sk-ssh-ed25519@openssh.com BASE64 [comment]``.

        Raises InputError for another type or a malformed key.
        """
        if line.startswith(TOKEN_KEY):
            return cls._of_token(line, where)
        try:
            key = load_ssh_public_key(line.encode())
        except (ValueError, UnsupportedAlgorithm) as error:
            raise InputError("not an OpenSSH public key", where=where, found=line[:60]) from error
        if not isinstance(key, Ed25519PublicKey):
            raise InputError("a key of another type", where=where, expected="ssh-ed25519", found=line[:20])
        return cls(key.public_bytes(Encoding.Raw, PublicFormat.Raw))

    @classmethod
    def _of_token(cls, line: str, where: str) -> PublicKey:
        try:
            blob = base64.b64decode(line.split()[1], validate=True)
            reader = Reader(blob)
            _, raw, application = reader.string(), reader.string(), reader.string().decode()
            key = cls(raw, application)
        except (ValueError, IndexError) as error:
            raise InputError("not an OpenSSH public key", where=where, found=line[:60]) from error
        if len(raw) != 32 or not application or key.blob != blob:
            raise InputError("not an OpenSSH public key", where=where, expected="a key of 32 bytes", found=line[:60])
        return key

    def __reduce__(self) -> tuple[type[PublicKey], tuple[bytes, str]]:
        return PublicKey, (self.raw, self.application)  # what is cached belongs to one process

    @property
    def kind(self) -> str:
        """The key type, as the first word of its line."""
        return TOKEN_KEY if self.application else FILE_KEY

    @cached_property
    def blob(self) -> bytes:
        """The key in the SSH wire format."""
        parts = (self.kind.encode(), self.raw, self.application.encode())
        return b"".join(map(ssh_string, parts if self.application else parts[:2]))

    @property
    def openssh(self) -> str:
        """Type and base64 of the key without a comment."""
        return f"{self.kind} {base64.b64encode(self.blob).decode()}"

    @cached_property
    def id(self) -> str:
        """The OpenSSH fingerprint, as ``ssh-keygen -l`` prints it: ``SHA256:`` and unpadded base64."""
        return "SHA256:" + base64.b64encode(hashlib.sha256(self.blob).digest()).decode().rstrip("=")

    @cached_property
    def _key(self) -> Ed25519PublicKey:
        return Ed25519PublicKey.from_public_bytes(self.raw)

    def verify(self, signature: bytes, message: bytes) -> bool:
        """Whether ``signature`` (64 bytes) is this key's over ``message``."""
        try:
            self._key.verify(signature, message)
        except InvalidSignature:
            return False
        return True


@dataclass(frozen=True)
class PrivateKey:
    """A key that signs. Its bytes show in no representation."""

    _key: Ed25519PrivateKey

    @classmethod
    def generate(cls) -> PrivateKey:
        """A new key from the operating system's random source."""
        return cls(Ed25519PrivateKey.generate())

    @property
    def public(self) -> PublicKey:
        """The public half."""
        return PublicKey(self._key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw))

    def sign(self, message: bytes) -> bytes:
        """64 bytes; the same for the same message (RFC 8032)."""
        return self._key.sign(message)

    def openssh(self) -> bytes:
        """The unencrypted OpenSSH private key file."""
        return self._key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())


def key_folder() -> Path:
    """``<configuration>/keys``. Raises TrustError where that lies in a workspace, which is committed."""
    folder = config_home() / KEYS
    for above in folder.parents:
        if (above / "orders").is_dir() and (above / "canon").is_dir():
            raise TrustError(
                "private keys would lie inside a workspace",
                where=str(folder),
                expected="a configuration folder outside every workspace",
                found=str(above),
                next_step="point CARVE_CONFIG or XDG_CONFIG_HOME at a folder of your own",
            )
    return folder


def load(path: Path, ask: Callable[[], bytes] | None = None) -> PrivateKey:
    """Read a private key file; ``ask`` gives the passphrase of an encrypted one.

    Raises TrustError where group or others may read it, InputError where it is no Ed25519 key in OpenSSH format or its
    passphrase is missing or wrong.
    """
    try:
        with path.open("rb") as stream:  # the permissions judged are those of the very file that is read
            mode = stat.S_IMODE(os.fstat(stream.fileno()).st_mode)
            text = stream.read()
    except OSError as error:
        raise InputError(
            "no private key to read",
            where=str(path),
            found=str(error.strerror),
            next_step="`runner keys init NAME` makes one",
        ) from error
    if mode & 0o077:
        raise TrustError(
            "others can read this private key",
            where=str(path),
            expected="mode 0600",
            found=f"mode {mode:04o}",
            next_step=f"chmod 600 {path}, or make a new key if somebody else may have read it",
        )
    try:
        try:
            key = load_ssh_private_key(text, None)
        except TypeError:  # encrypted
            key = load_ssh_private_key(text, ask() if ask else None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise InputError(
            "not a private key in OpenSSH format, or its passphrase is missing or wrong",
            where=str(path),
            found=str(error),
        ) from error
    if not isinstance(key, Ed25519PrivateKey):
        raise InputError(
            "a key of another type", where=str(path), expected="Ed25519", found=type(key).__name__.lstrip("_")
        )
    return PrivateKey(key)


def create(name: str) -> PrivateKey:
    """Make ``<configuration>/keys/<name>`` (mode 0600) and ``<name>.pub``.

    Raises InputError where it exists, or for a name that no file of signers could hold.
    """
    if not re.fullmatch(NAME, name):
        raise InputError("not a name for a key", expected="letters, digits, dots and dashes", found=repr(name))
    folder = key_folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    key, path = PrivateKey.generate(), folder / name
    descriptor, named = tempfile.mkstemp(prefix=f".{name}.", dir=folder)  # mode 0600
    draft = Path(named)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(key.openssh())
            stream.flush()
            os.fsync(stream.fileno())
        path.hardlink_to(draft)  # all at once, and never over an existing key
    except FileExistsError as error:
        raise InputError("this key exists already", where=str(path), expected="a new name", found=name) from error
    finally:
        draft.unlink(missing_ok=True)
    path.with_name(name + ".pub").write_text(f"{key.public.openssh} {name}\n")
    return key


def load_or_create(name: str) -> PrivateKey:
    """The user's key ``name``, made on first use."""
    path = key_folder() / name
    if not path.exists():
        try:
            return create(name)
        except InputError:
            if not path.exists():
                raise
            # another process was first: use its key
    return load(path)


def own_name(key_id: str) -> str:
    """What this user calls the key of an id; ``./KEY.pub`` where it is somebody else's."""
    for path in sorted(key_folder().glob("*.pub")):
        if PublicKey.from_openssh(path.read_text(encoding="utf-8").strip(), str(path)).id == key_id:
            return path.stem
    return "./KEY.pub"


__all__ = ["PrivateKey", "PublicKey", "create", "key_folder", "load", "load_or_create", "own_name"]
