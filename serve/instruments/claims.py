"""The claims of an order as their probes found them."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import ValidationError

from runner.model.evidence import Evidence
from runner.model.plan import PlannedWindow
from runner.model.sample import Claim, ClaimsMeasure, Sample
from serve.instruments.answers import fact, missing
from serve.instruments.base import sample

NAME = "claims"
VERSION = 1


def reduce(evidence: Sequence[Evidence], window: PlannedWindow) -> Sample:
    """Fact ``claims``: a list of ``Claim``. Raises EvidenceError where there is none or one is malformed."""
    own = evidence[0]
    found = fact(own, "claims")
    if not isinstance(found, list):
        raise missing(own, "facts.claims")
    try:
        claims = tuple(Claim.model_validate(one) for one in found)
    except ValidationError as error:
        raise missing(own, f"facts.claims in their form ({error.error_count()} faults)") from None
    return sample(evidence, ClaimsMeasure(claims=claims))
