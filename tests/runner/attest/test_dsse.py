"""Envelopes: an independent reader agrees, and no byte can change."""

from __future__ import annotations

import base64
import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer import SSlibKey

from runner.attest import dsse
from runner.attest.keys import PrivateKey, PublicKey
from runner.digest import canonical_json
from runner.errors import TrustError

ONE, TWO = PrivateKey.generate(), PrivateKey.generate()
KNOWN = {key.public.id: key.public for key in (ONE, TWO)}
DATA = dsse.sign(canonical_json({"a": ["b", 1]}), ONE)


def other_key(key: PublicKey) -> SSlibKey:
    """The same key for securesystemslib."""
    return SSlibKey(key.id, "ed25519", "ed25519", {"public": key.raw.hex()})


@given(st.binary(max_size=2000))
def test_any_payload_comes_back(payload: bytes) -> None:
    envelope = dsse.parse(dsse.sign(payload, ONE))
    assert dsse.verify(envelope, KNOWN.get) == payload


def test_an_independent_reader_agrees() -> None:
    data = dsse.sign(b'{"a":1}', TWO, ONE)
    envelope = Envelope.from_dict(json.loads(data))
    assert envelope.pae() == dsse.pre_authentication(b'{"a":1}')
    accepted = envelope.verify([other_key(ONE.public), other_key(TWO.public)], 2)
    assert set(accepted) == {ONE.public.id, TWO.public.id}
    single = Envelope.from_dict(json.loads(dsse.sign(b'{"a":1}', ONE)))
    with pytest.raises(VerificationError):
        single.verify([other_key(ONE.public), other_key(TWO.public)], 2)


def test_the_order_of_keys_does_not_matter() -> None:
    assert dsse.sign(b"x", ONE, TWO) == dsse.sign(b"x", TWO, ONE)


def test_no_byte_can_change() -> None:
    choose = random.Random(1)
    for _ in range(2000):
        at, change = choose.randrange(len(DATA)), choose.randrange(1, 256)
        changed = bytearray(DATA)
        changed[at] ^= change
        with pytest.raises(TrustError):
            dsse.verify(dsse.parse(bytes(changed)), KNOWN.get)


def test_no_byte_can_be_added_or_taken_away() -> None:
    for at in range(len(DATA) + 1):
        with pytest.raises(TrustError):
            dsse.verify(dsse.parse(DATA[:at] + b" " + DATA[at:]), KNOWN.get)
        if at < len(DATA):
            with pytest.raises(TrustError):
                dsse.verify(dsse.parse(DATA[:at] + DATA[at + 1 :]), KNOWN.get)


def rewritten(**changes: object) -> bytes:
    """The envelope with some fields replaced, in the right serialisation."""
    return canonical_json({**json.loads(DATA), **changes}) + b"\n"


SIGNATURE = json.loads(DATA)["signatures"][0]


@pytest.mark.parametrize(
    "data",
    [
        rewritten(payloadType="text/plain"),
        rewritten(signatures=[]),
        rewritten(signatures=[SIGNATURE, SIGNATURE]),
        rewritten(signatures={}),
        rewritten(signatures=[{**SIGNATURE, "cert": ""}]),
        rewritten(signatures=[{"sig": SIGNATURE["sig"]}]),
        rewritten(extra=1),
        rewritten(payload=None),
        rewritten(payload=base64.b64encode(b"{}").decode().rstrip("=")),
        rewritten(payload="e30\n"),
        rewritten(payload="e31="),
        rewritten(payload="_-__"),
        rewritten(payload="日本"),
        rewritten(signatures=[{**SIGNATURE, "sig": ""}]),
        b"[]\n",
        DATA + b"\n",
        DATA.rstrip(b"\n"),
    ],
)
def test_another_form_is_refused(data: bytes) -> None:
    with pytest.raises(TrustError):
        dsse.verify(dsse.parse(data), KNOWN.get)


def test_one_unknown_key_is_enough_to_refuse() -> None:
    envelope = dsse.parse(dsse.sign(b"x", ONE, TWO))
    with pytest.raises(TrustError, match="nobody here trusts"):
        dsse.verify(envelope, {ONE.public.id: ONE.public}.get)


def test_a_payload_without_a_key_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="needs a key"):
        dsse.sign(b"x")
