"""What a recipe made, as its own verification wrote it down."""

from __future__ import annotations

from collections.abc import Sequence

from runner.model.evidence import Evidence
from runner.model.plan import PlannedWindow
from runner.model.sample import ProductMeasure, Sample
from serve.instruments.answers import fact, missing
from serve.instruments.base import sample

NAME = "product"
VERSION = 1


def reduce(evidence: Sequence[Evidence], window: PlannedWindow) -> Sample:
    """Facts ``digests`` and ``summary`` (by name) and ``faults`` (list of text). Raises EvidenceError without them."""
    own = evidence[0]
    digests, summary, faults = fact(own, "digests"), fact(own, "summary"), fact(own, "faults")
    if not isinstance(digests, dict) or not isinstance(summary, dict):
        raise missing(own, "facts.digests and facts.summary")
    if not isinstance(faults, list):
        raise missing(own, "facts.faults")
    measure = ProductMeasure(
        digests={name: str(digest) for name, digest in digests.items()},
        summary={name: str(value) for name, value in summary.items()},
        faults=tuple(str(one) for one in faults),
    )
    return sample(evidence, measure)
