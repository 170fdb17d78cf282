"""Signatures as ``ssh-keygen -Y sign`` makes them, for people whose key lives in an agent or a hardware token.

The format is OpenSSH's PROTOCOL.sshsig; what is signed is the same pre-authentication encoding that our own keys sign.
Only the namespace ``dsv4-carve`` is accepted, so a signature made for git or for a login never speaks here.
"""

from __future__ import annotations

import base64
import hashlib
import subprocess
from dataclasses import dataclass
from pathlib import Path

from runner.attest.keys import PublicKey, Reader, ssh_string
from runner.errors import InputError, TrustError

NAMESPACE = "dsv4-carve"
"""The only signature namespace (OpenSSH ``-n``) under which a key speaks here."""
MAGIC = b"SSHSIG"
_VERSION = (1).to_bytes(4, "big")
_HASHES = {b"sha256": hashlib.sha256, b"sha512": hashlib.sha512}
_USER_PRESENT = 1
_BEGIN, _END = "-----BEGIN SSH SIGNATURE-----", "-----END SSH SIGNATURE-----"


def is_sshsig(signature: bytes) -> bool:
    """Whether these are the bytes of an SSH signature, and not a bare Ed25519 one."""
    return signature.startswith(MAGIC)


def verify(key: PublicKey, signature: bytes, message: bytes) -> bool:
    """Whether ``signature`` is this key's over ``message`` in our namespace. Every byte of it counts."""
    reader = Reader(signature)
    try:
        if reader.take(len(MAGIC)) != MAGIC or reader.take(4) != _VERSION or reader.string() != key.blob:
            return False
        namespace, reserved, algorithm = reader.string(), reader.string(), reader.string()
        inner = Reader(reader.string())
        kind, value = inner.string(), inner.string()
        token = inner.rest()
    except ValueError:
        return False
    if reader.rest() or namespace != NAMESPACE.encode() or reserved or algorithm not in _HASHES:
        return False
    digest = _HASHES[algorithm](message).digest()
    signed = MAGIC + b"".join(map(ssh_string, (namespace, reserved, algorithm, digest)))
    if kind != key.kind.encode():
        return False
    if not key.application:
        return not token and key.verify(value, signed)
    # A token signs its own hash of the data, with the touch flag and its counter (OpenSSH PROTOCOL.u2f).
    if len(token) != 5 or not token[0] & _USER_PRESENT:
        return False
    return key.verify(
        value, hashlib.sha256(key.application.encode()).digest() + token + hashlib.sha256(signed).digest()
    )


@dataclass(frozen=True)
class SshKey:
    """A key that ``ssh-keygen`` signs with: in the agent, in a token, or in the file beside ``path``."""

    path: Path
    """The public key file (``.pub``)."""
    public: PublicKey

    @classmethod
    def load(cls, path: Path) -> SshKey:
        """Raises InputError where there is no public key to read."""
        try:
            line = path.read_text(encoding="utf-8").strip()
        except OSError as error:
            raise InputError(
                "no public key to read",
                where=str(path),
                expected="the path of a .pub file, whose private half ssh-keygen finds",
                found=str(error.strerror),
                next_step="`runner keys list` shows your own keys, which need no .pub",
            ) from error
        return cls(path, PublicKey.from_openssh(line, str(path)))

    def sign(self, message: bytes) -> bytes:
        """The signature's bytes. Raises TrustError with the words of ``ssh-keygen`` where it makes none."""
        command = ["ssh-keygen", "-Y", "sign", "-n", NAMESPACE, "-f", str(self.path)]
        try:
            made = subprocess.run(command, input=message, capture_output=True, check=True).stdout.decode("ascii")
        except (OSError, subprocess.CalledProcessError, UnicodeDecodeError) as error:
            words = error.stderr.decode(errors="replace") if isinstance(error, subprocess.CalledProcessError) else error
            raise TrustError(
                "ssh-keygen made no signature",
                where=str(self.path),
                found=str(words).strip(),
                next_step="load the key into the agent or plug the token in, and touch it when it asks",
            ) from error
        body = made.partition(_BEGIN)[2].partition(_END)[0]
        signature = base64.b64decode("".join(body.split()))
        if not verify(self.public, signature, message):
            raise TrustError("ssh-keygen signed with another key", where=str(self.path), expected=self.public.id)
        return signature


__all__ = ["MAGIC", "NAMESPACE", "SshKey", "is_sshsig", "verify"]
