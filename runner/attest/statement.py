"""From a predicate to a signed file and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from pydantic import JsonValue, ValidationError

from runner.attest import dsse, sshsig
from runner.attest.canonical import first_fault, parse_canonical
from runner.attest.dsse import SigningKey
from runner.attest.trust import Role, Signer, Trust
from runner.digest import canonical_json
from runner.errors import InputError, TrustError
from runner.model.adoption import Adoption, Observation, Reproduction, Revocation, Waiver
from runner.model.challenge import Challenge
from runner.model.report import ReportPredicate
from runner.model.statement import Predicate, SignedIntent, Statement, subjects

PAYLOAD_LIMIT = 100_000
"""Bytes of one payload; a report that does not fit is not written."""

TYPES: Mapping[str, type[Predicate]] = {
    "urn:dsv4-carve:intent:v1": SignedIntent,
    "urn:dsv4-carve:report:v1": ReportPredicate,
    "urn:dsv4-carve:adoption:v1": Adoption,
    "urn:dsv4-carve:waiver:v1": Waiver,
    "urn:dsv4-carve:revocation:v1": Revocation,
    "urn:dsv4-carve:observation:v1": Observation,
    "urn:dsv4-carve:challenge:v1": Challenge,
    "urn:dsv4-carve:reproduction:v1": Reproduction,
}
"""Predicate types this checkout reads. A type's meaning never changes; a new meaning is a new version."""

ROLE_OF: Mapping[type[Predicate], Role] = {
    SignedIntent: "runner",
    ReportPredicate: "runner",
    Observation: "runner",
    Challenge: "runner",
    Reproduction: "runner",
    Adoption: "adopter",
    Waiver: "adopter",
    Revocation: "adopter",
}

_STATEMENTS: Mapping[str, type[Statement[Any]]] = {kind: Statement[model] for kind, model in TYPES.items()}  # type: ignore[valid-type]  # the models are known above

P = TypeVar("P", bound=Predicate)


@dataclass(frozen=True)
class Signed:
    """A signed file that was verified and read."""

    digest: str
    """SHA-256 of the envelope's bytes: its name in the ledger."""
    predicate: Predicate
    raw: dict[str, JsonValue]
    """The predicate as it was signed; digests are taken of this, never of a record written again."""
    subjects: dict[str, str]
    """Subject name to SHA-256."""
    signers: tuple[Signer, ...]
    where: str

    @property
    def keys(self) -> set[str]:
        """Ids of the keys that signed it."""
        return {signer.key.id for signer in self.signers}

    @property
    def at(self) -> datetime:
        """When it was made, as its signer says."""
        return moment(self.predicate.created_at, self.where)

    def of(self, kind: type[P]) -> P:
        """The predicate as ``kind``. Raises TrustError where it is another."""
        if not isinstance(self.predicate, kind):
            raise TrustError(
                "another kind of statement",
                where=self.where,
                expected=kind.__name__,
                found=type(self.predicate).__name__,
            )
        return self.predicate


def moment(instant: str, where: str) -> datetime:
    """An RFC 3339 instant as a time. Raises TrustError for a day or hour that does not exist, or without a zone."""
    try:
        found = datetime.fromisoformat(instant)
    except ValueError as error:
        raise TrustError("not a time", where=where, expected="UTC time in RFC 3339", found=instant) from error
    if found.tzinfo is None:
        raise TrustError("a time without its zone", where=where, expected="2027-01-31T00:00:00Z", found=instant)
    return found


def write(predicate: Predicate, digests: dict[str, str]) -> bytes:
    """The payload: an in-toto statement about ``digests`` (name to SHA-256) in canonical JSON.

    Raises InputError where it would be larger than :data:`PAYLOAD_LIMIT` or holds a number that JSON cannot.
    """
    kind = next(name for name, model in TYPES.items() if type(predicate) is model)
    content = predicate.model_dump(mode="json")
    statement = Statement[dict[str, JsonValue]](subject=subjects(digests), predicate_type=kind, predicate=content)
    try:
        payload = canonical_json(statement.model_dump(mode="json", by_alias=True))
    except ValueError as error:
        raise InputError("a number that JSON cannot hold", where=kind, found=str(error)) from error
    if len(payload) > PAYLOAD_LIMIT:
        largest = sorted(content, key=lambda key: -len(canonical_json(content[key])))[:3]
        raise InputError(
            "the statement is too large to sign",
            where=kind,
            expected=f"at most {PAYLOAD_LIMIT} bytes",
            found=f"{len(payload)} bytes, most of them in {', '.join(largest)}",
            next_step="plan fewer windows, documents or streams, or split the order"
            if isinstance(predicate, ReportPredicate)
            else "say it in fewer words",
        )
    return payload


def sign(predicate: Predicate, digests: dict[str, str], *keys: SigningKey) -> bytes:
    """The signed file's bytes. Raises InputError as :func:`write` does."""
    return dsse.sign(write(predicate, digests), *keys)


def read(payload: bytes, where: str) -> tuple[Statement[Predicate], dict[str, JsonValue]]:
    """A payload whose signature holds, and its predicate as it was signed.

    Raises TrustError for anything that :func:`write` would not write.
    """
    value = parse_canonical(payload, where)
    kind = value.get("predicateType") if isinstance(value, dict) else None
    if isinstance(kind, str) and kind not in _STATEMENTS:
        raise TrustError(
            "an unknown kind or version of statement",
            where=where,
            expected=", ".join(TYPES),
            found=kind,
            next_step="read it with the version of this tool that wrote it",
        )
    model = _STATEMENTS[kind] if isinstance(kind, str) else Statement[Predicate]
    try:
        statement: Statement[Predicate] = model.model_validate_json(payload, strict=True, by_alias=True, by_name=False)
    except ValidationError as error:
        raise TrustError(
            "the statement has not the fields it must have", where=where, found=first_fault(error)
        ) from error
    assert isinstance(value, dict) and isinstance(value["predicate"], dict), "the validator has just accepted an object"
    return statement, value["predicate"]


def open_signed(data: bytes, trust: Trust, where: str) -> Signed:
    """Verify, then read. Raises TrustError where anything does not hold."""
    return open_envelope(dsse.parse(data, where), trust, where)


def open_envelope(envelope: dsse.Envelope, trust: Trust, where: str) -> Signed:
    """As :func:`open_signed`, for an envelope that was taken apart already."""
    statement, raw = read(dsse.verify(envelope, trust.key, where), where)
    predicate = statement.predicate
    at = moment(predicate.created_at, where)
    roles = (ROLE_OF[type(predicate)],)
    if roles != ("adopter",) and any(sshsig.is_sshsig(each.value) for each in envelope.signatures):
        raise TrustError("an SSH signature is for what people decide", where=where, found=statement.predicate_type)
    if isinstance(predicate, Waiver):
        moment(predicate.expires_at, where)
    signers = tuple(trust.signer(each.key_id, roles, at, where) for each in envelope.signatures)
    named = {each.name: each.digest.sha256 for each in statement.subject}
    if len(named) != len(statement.subject) or list(named) != sorted(named):
        raise TrustError("subjects out of order or named twice", where=where, found=", ".join(named))
    if named and (about := _about(predicate)) not in (None, named):
        what = "a statement about something else than it says"
        raise TrustError(what, where=where, expected=str(about), found=str(named))
    return Signed(envelope.digest, predicate, raw, named, signers, where)


def _about(predicate: Predicate) -> dict[str, str] | None:
    """The subjects of a decision, which readers of subjects alone go by; None where they do not follow from it."""
    if isinstance(predicate, Adoption | Waiver):
        return {"report": predicate.report.digest}
    if isinstance(predicate, Revocation):
        return {"decision": predicate.revokes}
    return None


__all__ = [
    "PAYLOAD_LIMIT",
    "ROLE_OF",
    "TYPES",
    "Signed",
    "moment",
    "open_envelope",
    "open_signed",
    "read",
    "sign",
    "write",
]
