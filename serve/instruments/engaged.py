"""A window whose only purpose is its engagement counters."""

from __future__ import annotations

from collections.abc import Sequence

from runner.model.evidence import Evidence
from runner.model.plan import PlannedWindow
from runner.model.sample import EngagedMeasure, Sample
from serve.instruments.answers import choice, error_text, usage
from serve.instruments.base import sample

NAME = "engaged"
VERSION = 1


def reduce(evidence: Sequence[Evidence], window: PlannedWindow) -> Sample:
    """Tokens generated while the counters were watched."""
    exchanges = evidence[0].exchanges
    faults = [f"{one.id}: {error_text(one)}" for one in exchanges if choice(one) is None]
    tokens = sum(int(usage(one).get("completion_tokens", 0)) for one in exchanges)
    if not tokens:
        faults.append("no token was generated")
    return sample(evidence, EngagedMeasure(tokens=tokens), faults)
