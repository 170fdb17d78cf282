"""The pack's closure and census, as the pack check wrote them down."""

from __future__ import annotations

from collections.abc import Sequence

from runner.model.evidence import Evidence
from runner.model.plan import PlannedWindow
from runner.model.sample import PackMeasure, Sample
from serve.instruments.answers import fact, missing
from serve.instruments.base import sample

NAME = "pack"
VERSION = 1


def reduce(evidence: Sequence[Evidence], window: PlannedWindow) -> Sample:
    """Facts ``header_digest``, ``payload_digest`` and ``faults`` (list of text)."""
    own = evidence[0]
    faults = fact(own, "faults")
    if not isinstance(faults, list):
        raise missing(own, "facts.faults")
    measure = PackMeasure(
        header_digest=str(fact(own, "header_digest")),
        payload_digest=str(fact(own, "payload_digest")),
        faults=tuple(str(one) for one in faults),
    )
    return sample(evidence, measure)
