"""in-toto Statement v1: what every signed file holds."""

from __future__ import annotations

from typing import Final, Generic, Literal, TypeVar

from pydantic import ConfigDict, Field

from runner.model.base import Digest, Instant, Record
from runner.model.run import Intent

STATEMENT_TYPE: Final = "https://in-toto.io/Statement/v1"


class DigestSet(Record):
    """The digests of one subject; ours is always SHA-256."""

    sha256: Digest


class Subject(Record):
    """One thing that a statement is about."""

    name: str
    digest: DigestSet


class Predicate(Record):
    """What every predicate of ours carries."""

    created_at: Instant
    """When it was made, as its signer says; the key's validity is judged at this moment."""
    parents: tuple[Digest, ...]
    """Ledger heads that the signer saw: digests of signed files, sorted."""


class SignedIntent(Intent, Predicate):
    """An intent as it stands in the ledger; without a report it stays there as ABANDONED."""


P = TypeVar("P")


class Statement(Record, Generic[P]):
    """The envelope's payload."""

    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True)

    type: Literal["https://in-toto.io/Statement/v1"] = Field(STATEMENT_TYPE, alias="_type")
    subject: tuple[Subject, ...]
    predicate_type: str = Field(alias="predicateType")
    predicate: P


def subjects(digests: dict[str, str]) -> tuple[Subject, ...]:
    """Subjects sorted by name."""
    return tuple(Subject(name=name, digest=DigestSet(sha256=digests[name])) for name in sorted(digests))
