"""What became of cheating on one seat: the corpus of exploits, tried with the gates of one checkout."""

from __future__ import annotations

from runner.model.base import Digest, Record, Slug
from runner.model.boot import Label
from runner.model.statement import Predicate


class Tried(Record):
    """One exploit and what noticed it."""

    exploit: Slug
    caught_by: tuple[str, ...]
    """``gate name@version``, of a library that was run with ``STATUS: reason``; ``verify: reason``, ``ledger: reason``
    or ``sandbox``. Empty where nothing noticed."""
    open: str = ""
    """Why nothing is expected to notice it here; an exploit that nobody noticed and nobody expected is a failure."""


class Challenge(Predicate):
    """Every exploit of the corpus tried on one seat."""

    seat: Slug
    label: Label
    corpus: Digest
    """SHA-256 of the corpus file."""
    control: Digest
    """The honest report that stands in for what the exploits change; it has to pass."""
    graders: dict[str, Digest]
    """As in a report: the gates and instruments that were challenged."""
    tried: tuple[Tried, ...]
