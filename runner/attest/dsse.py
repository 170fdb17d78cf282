"""DSSE v1 envelopes (github.com/secure-systems-lab/dsse) in one fixed serialisation.

The signature covers the pre-authentication encoding of the payload's bytes. Verification is over those bytes first;
only then are the same bytes parsed. The envelope around them is refused in any other spelling, so no byte of the file
can change without notice.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

import pybase64
from pydantic import ValidationError

from runner.attest import sshsig
from runner.attest.canonical import first_fault
from runner.attest.keys import PublicKey
from runner.digest import canonical_json, sha256_bytes
from runner.errors import TrustError
from runner.model.base import Record
from runner.visible import visible


class UnknownKeyError(TrustError):
    """Signed by a key that nobody here trusts."""


FILE_LIMIT = 1 << 20
"""Bytes of a signed file: several times what the largest payload needs."""
PAYLOAD_TYPE = "application/vnd.in-toto+json"


class _WireSignature(Record):
    keyid: str
    sig: str


class _Wire(Record):
    payload: str
    payloadType: Literal["application/vnd.in-toto+json"]
    signatures: tuple[_WireSignature, ...]


_HEAD = b'{"payload":"'
_ONE_SIGNATURE = re.compile(
    rb'","payloadType":"application/vnd\.in-toto\+json",'
    rb'"signatures":\[\{"keyid":"(?P<keyid>[A-Za-z0-9+/:]*)","sig":"(?P<sig>[A-Za-z0-9+/]*={0,2})"\}\]\}\n'
)
"""What follows the payload of an envelope with one signature, in its one serialisation but for padding bits."""


@dataclass(frozen=True)
class Signature:
    """One signature of an envelope; the key id is only a hint until the key it names has verified it."""

    key_id: str
    value: bytes


@dataclass(frozen=True)
class Envelope:
    """A parsed envelope, not yet verified."""

    payload: bytes
    signatures: tuple[Signature, ...]
    digest: str
    """SHA-256 of the envelope's own bytes: how other statements name it."""


def pre_authentication(payload: bytes) -> bytes:
    """``DSSEv1 SP LEN(type) SP type SP LEN(payload) SP payload``."""
    return b"DSSEv1 %d %s %d %s" % (len(PAYLOAD_TYPE), PAYLOAD_TYPE.encode(), len(payload), payload)


def _serialise(payload: bytes, signatures: tuple[Signature, ...]) -> bytes:
    # Neither base64 nor the type holds a character that JSON would escape, so the long part is not scanned for one.
    rest = canonical_json([{"keyid": each.key_id, "sig": base64.b64encode(each.value).decode()} for each in signatures])
    return b'{"payload":"%b","payloadType":"%b","signatures":%b}\n' % (
        base64.b64encode(payload),
        PAYLOAD_TYPE.encode(),
        rest,
    )


class SigningKey(Protocol):
    """A key of ours, or one that ``ssh-keygen`` signs with."""

    @property
    def public(self) -> PublicKey:
        """The public half."""
        ...

    def sign(self, message: bytes) -> bytes:
        """The signature that :func:`verify` accepts of this key."""
        ...


def sign(payload: bytes, *keys: SigningKey) -> bytes:
    """The envelope's bytes, with one signature of each key in order of key id."""
    if not keys:
        raise ValueError("an envelope needs a key")
    message = pre_authentication(payload)
    made = {key.public.id: Signature(key.public.id, key.sign(message)) for key in keys}
    return _serialise(payload, tuple(made[key_id] for key_id in sorted(made)))


def _decode(text: str, where: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise TrustError("not base64", where=where, found=str(error)) from error


def _usual(data: bytes) -> Envelope | None:
    """An envelope with one signature in its one serialisation, which need not be written again to see that it is."""
    end = data.find(b'"', len(_HEAD))
    found = _ONE_SIGNATURE.fullmatch(data, end) if data.startswith(_HEAD) and end > 0 else None
    if found is None:
        return None
    encoded = data[len(_HEAD) : end]
    try:
        payload, signature = (pybase64.b64decode(each, validate=True) for each in (encoded, found["sig"]))
    except binascii.Error:
        return None
    if (pybase64.b64encode(payload), pybase64.b64encode(signature)) != (encoded, found["sig"]):
        return None  # no base64, or other padding bits: another spelling of the same bytes
    return Envelope(payload, (Signature(found["keyid"].decode(), signature),), sha256_bytes(data))


def parse(data: bytes, where: str = "envelope") -> Envelope:
    """Take an envelope apart. Raises TrustError unless it is spelt exactly as :func:`sign` would spell it."""
    if (usual := _usual(data)) is not None:
        return usual
    text = data.removesuffix(b"\n")
    try:
        wire = _Wire.model_validate_json(text, strict=True)
    except ValidationError as error:
        raise TrustError(
            "not a DSSE envelope",
            where=where,
            expected=f"payload, payloadType {PAYLOAD_TYPE}, signatures[keyid, sig]",
            found=first_fault(error),
        ) from error
    payload = _decode(wire.payload, f"{where}, payload")
    signatures = tuple(Signature(each.keyid, _decode(each.sig, f"{where}, signature")) for each in wire.signatures)
    key_ids = [each.key_id for each in signatures]
    if not key_ids or key_ids != sorted(set(key_ids)):
        raise TrustError(
            "signatures out of order", where=where, expected="at least one, sorted by key id", found=ascii(key_ids)
        )
    if _serialise(payload, signatures) != data:
        raise TrustError(
            "the envelope is not in its one serialisation",
            where=where,
            expected="canonical JSON, standard base64, one newline at the end",
            found="other bytes",
        )
    return Envelope(payload, signatures, sha256_bytes(data))


def verify(envelope: Envelope, find: Callable[[str], PublicKey | None], where: str = "envelope") -> bytes:
    """The payload's bytes after every signature was checked.

    ``find`` gives the public key of a key id. Raises TrustError where a key is not known or a signature does not hold.
    """
    message = pre_authentication(envelope.payload)
    for signature in envelope.signatures:
        key = find(signature.key_id)
        if key is None:
            raise UnknownKeyError(
                "signed by a key that nobody here trusts",
                where=where,
                expected="a key of canon/allowed_signers or of your own trust file",
                found=visible(signature.key_id),
                next_step="`runner keys trust` after checking the fingerprint with its owner",
            )
        holds = sshsig.verify if sshsig.is_sshsig(signature.value) else PublicKey.verify
        if not holds(key, signature.value, message):
            raise TrustError("the signature does not hold", where=where, found=visible(signature.key_id))
    return envelope.payload


__all__ = [
    "FILE_LIMIT",
    "PAYLOAD_TYPE",
    "Envelope",
    "Signature",
    "SigningKey",
    "UnknownKeyError",
    "parse",
    "pre_authentication",
    "sign",
    "verify",
]
