"""What was asked of the engine beside what every rank of the live engine says."""

from __future__ import annotations

from collections.abc import Sequence

from runner.model.configuration import pairs
from runner.model.evidence import Evidence
from runner.model.plan import PlannedWindow
from runner.model.sample import FieldPair, ResolvedMeasure, Sample
from serve.instruments.answers import fact, missing
from serve.instruments.base import sample

NAME = "resolved"
VERSION = 1


def reduce(evidence: Sequence[Evidence], window: PlannedWindow) -> Sample:
    """Pairs of all ranks; a rank that agrees with rank 0 adds none. Raises EvidenceError without an answer."""
    own = evidence[0]
    requested = fact(own, "requested")
    answers = [answer for call in own.calls if call.method == "resolved" for answer in call.results]
    if not isinstance(requested, dict) or not answers:
        raise missing(own, "calls.resolved and facts.requested")
    found: dict[FieldPair, None] = {}
    faults = []
    for rank, answer in enumerate(answers):
        if isinstance(answer, dict):
            found |= dict.fromkeys(pairs(requested, answer))
        else:
            faults.append(f"rank {rank} gave no configuration")
    return sample(evidence, ResolvedMeasure(fields=tuple(found)), faults)
