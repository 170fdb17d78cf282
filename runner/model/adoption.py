"""What people decide about reports, and what a seat was seen to be."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, JsonValue

from runner.model.base import Digest, Instant, Record, Slug
from runner.model.boot import Label
from runner.model.statement import Predicate


class ReportName(Record):
    """The report that a decision is about."""

    run: Slug
    order: Slug
    digest: Digest
    """SHA-256 of the report's envelope."""


class Adoption(Predicate):
    """A person takes a report into the canon, or declines to."""

    result: Literal["ADOPTED", "REJECTED"]
    report: ReportName
    seat: Slug
    """The seat it is adopted for."""
    scope: Literal["standing", "descriptive"]
    """``descriptive`` records figures without making them the standing configuration."""
    waivers: tuple[Digest, ...]
    """Waivers it rests on."""
    reason: str = Field(min_length=1)


class Waiver(Predicate):
    """A person lets one gate of one report stand open until a day."""

    report: ReportName
    gate: Slug
    reason: str = Field(min_length=1)
    expires_at: Instant


class Revocation(Predicate):
    """A person takes a decision back."""

    revokes: Digest
    """An adoption, rejection or waiver."""
    reason: str = Field(min_length=1)


class Reproduction(Predicate):
    """The sealed plan of a report was run again with a new seed, by another key."""

    report: ReportName
    """The report that was reproduced, or was not."""
    again: ReportName
    """The report of the new run; both verdicts can be read, so neither is repeated here."""
    plan: Digest
    """SHA-256 of what both plans share: all but the seed's commitment and what each machine compiled itself."""


class Observation(Predicate):
    """A seat read back: what later reports and adoptions are compared with."""

    seat: Slug
    label: Label
    subjects: dict[str, Digest]
    resolved: dict[str, JsonValue]
