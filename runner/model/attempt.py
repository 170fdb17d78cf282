"""One try of a craftsperson at an order, and the history of all of them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import StringConstraints

from runner.model.base import Digest, Instant, Record, Slug, later
from runner.model.verdict import Status

Commit = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{40}([0-9a-f]{24})?$")]
"""A git object id."""

FindingKind = Literal[
    "main-changed",
    "refs-changed",
    "order-changed",
    "outside-clone",
    "outside-allowed",
    "not-a-file",
    "no-change",
    "imports-outside",
    "sealed-read",
    "outside-process",
    "left-processes",
    "time-limit",
    "output-limit",
    "disk-limit",
    "failed",
    "not-supervised",
    "repository-changed",
    "does-not-build",
]


class Finding(Record):
    """Why an attempt gives no candidate."""

    kind: FindingKind
    detail: str
    """What was seen, naming files, processes or limits."""


class Session(Record):
    """One working session: what was started, how it ended, what it said."""

    sandbox: str
    """``bubblewrap`` with its version, or ``none``."""
    network: Literal["none", "open"]
    """What the session could reach; without a sandbox always ``open``."""
    started_at: Instant
    ended_at: Instant
    exit_code: int | None
    """None where it was stopped."""
    heartbeats: int
    transcript: Digest
    """SHA-256 of everything it printed, as it was kept."""
    transcript_bytes: int
    unseen: tuple[str, ...] = later(())
    """What nobody watched, and why: a deed there would have no name."""
    meanwhile: tuple[str, ...] = later(())
    """What changed outside while it lasted, and not by a call of its own: somebody else was at work."""
    interrupted: tuple[str, ...] = later(())
    """Sessions in this very clone before it that something ended from outside, and how far they had come."""


class Judged(Record):
    """What a verified signed report said about the attempt's candidate."""

    run: Slug
    report: Digest
    verdict: Status
    refused: dict[Slug, Status]
    """Gates that did not pass."""
    reasons: tuple[str, ...]
    """Why, gate by gate, in their own words."""
    killed: tuple[Slug, ...] = ()
    """Gates on which a kill line struck: the work is stopped."""


class Attempt(Record):
    """A try with all that is known of it afterwards."""

    number: int
    craftsperson: Slug
    brief: Digest
    base: Commit
    """What the clone was made of, and what the change is measured against."""
    session: Session
    findings: tuple[Finding, ...]
    deviations: tuple[str, ...]
    """Where limits of the order were not kept, and why."""
    changed: tuple[str, ...]
    """Files that differ from ``base``; of many, the first and how many more."""
    commit: Commit | None
    """The frozen candidate; None where a finding about the session forbids one. One that does not build keeps it."""
    tree: Digest | None
    """SHA-256 over paths and contents of the files that are taken from ``commit``."""
    judged: Judged | None = None

    @property
    def waits(self) -> bool:
        """A candidate that nothing has refused and no report has judged."""
        return self.commit is not None and not self.findings and self.judged is None


class History(Record):
    """Every attempt at one version of one order, oldest first; the last one is the one under test."""

    order: Slug
    order_digest: Digest
    attempts: tuple[Attempt, ...]
    unproven: str = later("")
    """Why nothing but the candidate's own file says that these attempts were made, by whom and how; empty where the
    runner that executed it had their bench. Histories of earlier releases lack it: they were not compared."""


class CandidateFile(Record):
    """``candidate.json``: what ``runner execute --candidate`` takes."""

    schema_version: Literal[1] = 1
    store: str
    """The git repository that holds ``commit``."""
    base: Commit
    commit: Commit
    tree: Digest
    files: dict[str, Digest]
    """SHA-256 of each file that is taken, by its path in the checkout."""
    history: History


__all__ = ["Attempt", "CandidateFile", "Commit", "Finding", "FindingKind", "History", "Judged", "Session"]
