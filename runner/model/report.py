"""The report's predicate: readable figures, and everything the verdicts were computed from."""

from __future__ import annotations

from typing import Literal

from pydantic import JsonValue

from runner.model.attempt import History
from runner.model.base import Digest, Instant, Record, Slug, later
from runner.model.boot import BootRecord, Isolation, Label
from runner.model.plan import Plan
from runner.model.run import Cost, SelfTest
from runner.model.sample import Sample
from runner.model.statement import Predicate
from runner.model.verdict import Figure, Status

WEAKEST_FIRST: tuple[Label, ...] = ("simulated", "attached", "cpu", "real")
"""A report's label is the weakest of its boots' labels."""


class OrderPart(Record):
    """The work order, exactly as it was read."""

    name: Slug
    digest: Digest
    """SHA-256 of ``text`` in UTF-8."""
    text: str


class SeatPart(Record):
    """Where it was measured."""

    name: Slug
    digest: Digest
    """Digest of the seat manifest, as the plan sealed it."""
    label: Label
    isolation: Isolation
    manifest: dict[str, JsonValue] | None = later(None)
    """The manifest itself, whose digest stands above: what may bear the label follows from it. Reports of before it
    was in them lack it; a plan with the subject ``seat.manifest`` asks for it."""


class PlanPart(Record):
    """The sealed plan by its digest, and the seed that keyed every draw."""

    digest: Digest
    """SHA-256 of the canonical JSON of ``record.plan``."""
    seed_commitment: Digest
    seed: Digest
    """The 256-bit seed in hex; its SHA-256 is the commitment."""
    intent: Digest
    """Ledger entry that was signed before the first boot."""


class GatePart(Record):
    """One gate of the order."""

    name: Slug
    version: int
    verdict: Status
    reasons: tuple[str, ...]
    figures: tuple[Figure, ...]


class EvidencePart(Record):
    """Raw evidence by digest; the archive beside the report holds what fitted."""

    archive: Digest | None
    """SHA-256 of ``evidence.tar.xz``; null where nothing was kept."""
    files: dict[str, Digest]
    """Every evidence file of the run by its path in the run folder: the full evidence."""
    kept: dict[str, Digest]
    """What the archive holds by the same paths: of each file the extract that its instrument reads."""

    @property
    def not_kept(self) -> tuple[str, ...]:
        """Files that are in the run folder only."""
        return tuple(sorted(self.files.keys() - self.kept.keys()))


class Packed(Record):
    """A :class:`Measured` as canonical JSON, compressed so that the whole report stays small enough to commit."""

    encoding: Literal["xz+base64"] = "xz+base64"
    digest: Digest
    """SHA-256 of the JSON's bytes."""
    size: int
    """Bytes of the JSON."""
    data: str


class Measured(Record):
    """All that the gates read."""

    plan: Plan
    boots: tuple[BootRecord, ...]
    samples: tuple[Sample, ...]


class ReportPredicate(Predicate):
    """A finished run. ``gates`` and ``self_test`` can be read as they stand; ``record`` is what they follow from."""

    run: Slug
    """Name of the run; unique in a workspace."""
    order: OrderPart
    seat: SeatPart
    plan: PlanPart
    started_at: Instant
    """When the plan was sealed."""
    ended_at: Instant
    """When the last verdict was there."""
    verdict: Status
    """Of the whole: see :func:`runner.model.verdict.overall`."""
    gates: tuple[GatePart, ...]
    """Every gate of the order, in its order."""
    graders: dict[str, Digest]
    """Source digest of each ``gate/name@version`` and ``instrument/name@version`` of the plan."""
    self_test: tuple[SelfTest, ...]
    """Each gate of the run fed a case that it must not pass."""
    assurance: tuple[str, ...]
    """Outside witnesses that stood."""
    assurance_level: Literal["self_attested"] = "self_attested"
    """A signature proves who said it, not that the machine was honest."""
    environment: dict[str, JsonValue]
    """Machine, kernel, Python, processors: facts, not verdicts."""
    costs: tuple[Cost, ...]
    """Seconds of seat time; together those of all boots."""
    repeats: int
    """Blocks measured again because the machine was disturbed."""
    challenge: Digest | None = None
    """Ledger entry that says which known cheats the seat's gates noticed before this run; null where none was tried."""
    craft: History | None
    """Every attempt that led to the candidate, bound by the subject ``craft.history``; null where none was given."""
    evidence: EvidencePart
    record: Packed
