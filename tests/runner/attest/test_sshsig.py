"""Signatures of ``ssh-keygen -Y sign``: from a file, from a hardware token, and only for what people decide."""

from __future__ import annotations

import base64
import hashlib
import subprocess
from pathlib import Path

import pytest

from runner.attest import dsse, sshsig, statement
from runner.attest.keys import PrivateKey, PublicKey, ssh_string
from runner.attest.sshsig import SshKey
from runner.attest.trust import Trust, read_signers, signer_line
from runner.errors import InputError, TrustError
from runner.model.adoption import Observation, Revocation
from runner.model.statement import Predicate
from tests.runner.records import digest_of

AT = "2026-12-01T12:00:00Z"
REVOCATION = Revocation(created_at=AT, parents=(), revokes=digest_of("adoption"), reason="noise")
OBSERVATION = Observation(created_at=AT, parents=(), seat="s", label="cpu", subjects={}, resolved={})


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> SshKey:
    """A key in a file, used through ssh-keygen."""
    path = tmp_path_factory.mktemp("keys") / "demo-person"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
    return SshKey.load(path.with_suffix(".pub"))


def trust_in(key: PublicKey, role: str = "adopter") -> Trust:
    assert role in ("runner", "adopter")
    line = signer_line("adopter" if role == "adopter" else "runner", "demo-person", key)
    return Trust(read_signers(line, "repository", "x"))


def test_a_decision_signed_by_ssh_keygen_is_read_like_any_other(own: SshKey) -> None:
    signed = statement.open_signed(statement.sign(REVOCATION, {}, own), trust_in(own.public), "x")
    assert signed.predicate == REVOCATION
    assert signed.signers[0].key == own.public


def test_every_bit_of_the_signature_counts(own: SshKey) -> None:
    signature = own.sign(b"text")
    assert sshsig.verify(own.public, signature, b"text")
    assert not sshsig.verify(own.public, signature, b"other")
    assert not sshsig.verify(PrivateKey.generate().public, signature, b"text")
    for at in range(len(signature)):
        changed = bytearray(signature)
        changed[at] ^= 1
        assert not sshsig.verify(own.public, bytes(changed), b"text"), at
    for other in (signature + b"\0", signature[:-1], signature[:20], b""):
        assert not sshsig.verify(own.public, other, b"text")


def test_a_signature_for_another_purpose_does_not_speak_here(own: SshKey) -> None:
    command = ["ssh-keygen", "-Y", "sign", "-n", "git", "-f", str(own.path)]
    armoured = subprocess.run(command, input=b"text", capture_output=True, check=True).stdout.decode()
    for_git = base64.b64decode("".join(armoured.splitlines()[1:-1]))
    assert sshsig.is_sshsig(for_git)
    assert not sshsig.verify(own.public, for_git, b"text")


class Token:
    """A hardware token: signs a hash of the application, a touch flag, a counter and a hash of the data."""

    def __init__(self, flags: int = 1) -> None:
        self._key, self._flags = PrivateKey.generate(), flags
        self.public = PublicKey(self._key.public.raw, "ssh:")

    def sign(self, message: bytes) -> bytes:
        fields = (b"dsv4-carve", b"", b"sha512")
        signed = b"SSHSIG" + b"".join(map(ssh_string, (*fields, hashlib.sha512(message).digest())))
        state = bytes([self._flags]) + (7).to_bytes(4, "big")
        told = hashlib.sha256(b"ssh:").digest() + state + hashlib.sha256(signed).digest()
        inner = ssh_string(self.public.kind.encode()) + ssh_string(self._key.sign(told)) + state
        parts = (self.public.blob, *fields, inner)
        return b"SSHSIG" + (1).to_bytes(4, "big") + b"".join(map(ssh_string, parts))


def test_a_key_in_a_hardware_token_decides() -> None:
    token = Token()
    assert PublicKey.from_openssh(f"{token.public.openssh} demo", "x") == token.public
    signed = statement.open_signed(statement.sign(REVOCATION, {}, token), trust_in(token.public), "x")
    assert signed.signers[0].key == token.public


def test_a_token_that_was_not_touched_decides_nothing() -> None:
    token = Token(flags=0)
    with pytest.raises(TrustError, match="does not hold"):
        statement.open_signed(statement.sign(REVOCATION, {}, token), trust_in(token.public), "x")


def test_a_bare_signature_of_a_token_is_none() -> None:
    token = Token()
    bare = dsse.sign(statement.write(REVOCATION, {}), PrivateKey.generate())
    envelope = dsse.parse(bare)
    forged = dsse.Envelope(envelope.payload, (dsse.Signature(token.public.id, bytes(64)),), envelope.digest)
    with pytest.raises(TrustError, match="does not hold"):
        dsse.verify(forged, lambda _: token.public)


@pytest.mark.parametrize("predicate", [OBSERVATION])
def test_what_a_runner_says_is_not_signed_that_way(own: SshKey, predicate: Predicate) -> None:
    data = statement.sign(predicate, {}, own)
    with pytest.raises(TrustError, match="for what people decide"):
        statement.open_signed(data, trust_in(own.public, "runner"), "x")


def test_what_ssh_keygen_cannot_sign_is_said(own: SshKey, tmp_path: Path) -> None:
    lonely = tmp_path / "demo-lonely.pub"
    lonely.write_text(PrivateKey.generate().public.openssh)
    with pytest.raises(TrustError, match="made no signature"):
        SshKey.load(lonely).sign(b"text")
    with pytest.raises(InputError, match="no public key"):
        SshKey.load(tmp_path / "demo-nobody.pub")
    pretender = SshKey(own.path, PrivateKey.generate().public)
    with pytest.raises(TrustError, match="with another key"):
        pretender.sign(b"text")


@pytest.mark.parametrize("blob", ["", "AAAA", base64.b64encode(ssh_string(b"x")).decode()])
def test_a_malformed_token_key_is_refused(blob: str) -> None:
    with pytest.raises(InputError, match="not an OpenSSH public key"):
        PublicKey.from_openssh(f"sk-ssh-ed25519@openssh.com {blob}", "x")
