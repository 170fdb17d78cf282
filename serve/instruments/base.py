"""What an instrument is, and the exact bytes of an evidence file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from runner.digest import canonical_json, sha256_bytes
from runner.model.evidence import Evidence
from runner.model.plan import PlannedWindow
from runner.model.sample import Measure, Sample
from serve.instruments.engagement import differences
from serve.instruments.machine import disturbed


class Instrument(Protocol):
    """One module in this package each: ``NAME``, ``VERSION`` and ``reduce``."""

    NAME: str
    VERSION: int

    def reduce(self, evidence: Sequence[Evidence], window: PlannedWindow) -> Sample:
        """The reading. ``evidence`` starts with the window's own; see :func:`inputs` for what follows.

        Raises EvidenceError where the evidence does not hold what the reading needs; a reading that exists but is no
        measurement carries ``faults`` instead.
        """
        ...


def inputs(window: PlannedWindow) -> tuple[str, ...]:
    """Windows whose evidence the reading needs, its own first (``arguments["reference_window"]`` names the other)."""
    reference = window.arguments.get("reference_window")
    return (window.id, reference) if isinstance(reference, str) else (window.id,)


def evidence_bytes(evidence: Evidence) -> bytes:
    """Exactly what ``evidence/<window>.json`` holds, so that :func:`evidence_digest` is the file's SHA-256."""
    return canonical_json(evidence.model_dump(mode="json"))


def evidence_digest(evidence: Evidence) -> str:
    """SHA-256 of :func:`evidence_bytes`."""
    return sha256_bytes(evidence_bytes(evidence))


def sample(evidence: Sequence[Evidence], measure: Measure, faults: Sequence[str] = ()) -> Sample:
    """The sample around a measure: engagement and machine state are those of the window's own evidence, the first."""
    own = evidence[0]
    engagement, counter_faults = differences(own)
    return Sample(
        window=own.window,
        boot=own.boot,
        instrument=own.instrument,
        variant=own.variant,
        evidence=tuple(evidence_digest(one) for one in evidence),
        measure=measure,
        engagement=engagement,
        disturbed=disturbed(own),
        faults=(*faults, *counter_faults),
    )
