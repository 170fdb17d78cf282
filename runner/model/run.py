"""A finished (or stopped) run: all that the report is made from."""

from __future__ import annotations

from pydantic import JsonValue

from runner.model.attempt import History
from runner.model.base import Digest, Instant, Record, Slug
from runner.model.boot import BootRecord
from runner.model.plan import Plan
from runner.model.sample import Sample
from runner.model.verdict import Status, Verdict


class Intent(Record):
    """Signed and put into the ledger before the first boot; one without a report shows as ABANDONED."""

    run: Slug
    order: Slug
    order_digest: Digest
    plan_digest: Digest
    seed_commitment: Digest
    candidate: dict[str, Digest]
    """Commit-independent identity of what is judged: library, tree or pack digests by name."""
    created_at: Instant


class SelfTest(Record):
    """Each gate of the run fed its must-fail case before the real sample."""

    gate: Slug
    version: int
    case: str
    status: Status
    """What the gate answered to the case; PASS here means nothing is signed."""


class Cost(Record):
    """Seat time of one gate's windows, or of one planned boot outside every window."""

    what: str
    """``gate <name>`` or ``boot <planned id>``."""
    seconds: int


class RunRecord(Record):
    """What `execute` leaves in the run folder for `report`; the report's predicate is built from it."""

    run: Slug
    order_text: str
    """The work order exactly as it was read."""
    order_digest: Digest
    plan: Plan
    plan_digest: Digest
    seed: str
    """Hex of the 256-bit seed, opened now that the run is over."""
    intent_digest: Digest
    started_at: Instant
    ended_at: Instant
    boots: tuple[BootRecord, ...]
    samples: tuple[Sample, ...]
    verdicts: tuple[Verdict, ...]
    self_tests: tuple[SelfTest, ...]
    subjects: dict[str, Digest]
    """What the report is about, by name (pack.header, pack.payload, library.lna2, tree.plugin, engine.record,
    brief)."""
    environment: dict[str, JsonValue]
    """Machine, kernel, Python, processor features, sandbox: facts, not verdicts."""
    costs: tuple[Cost, ...]
    evidence: dict[str, Digest]
    """SHA-256 of each evidence file of the run folder by its relative path."""
    challenge: Digest | None = None
    """Ledger entry of the seat's newest challenge."""
    craft: History | None = None
    """The attempts that led to the candidate, where one was dispatched."""
    repeats: int = 0
    """Blocks repeated because the machine was disturbed."""
    manifest: dict[str, JsonValue] | None = None
    """The seat's manifest as it was sealed: the plan's ``seat_digest`` is its digest."""
