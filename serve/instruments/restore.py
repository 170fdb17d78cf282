"""What the boots left behind, and whether the standing configuration came back."""

from __future__ import annotations

from collections.abc import Sequence

from runner.model.configuration import pairs
from runner.model.evidence import Evidence
from runner.model.plan import PlannedWindow
from runner.model.sample import RestoreMeasure, Sample
from serve.instruments.answers import fact, missing
from serve.instruments.base import sample

NAME = "restore"
VERSION = 1


def reduce(evidence: Sequence[Evidence], window: PlannedWindow) -> Sample:
    """Facts ``leftovers`` (list of text), ``requested`` and ``resolved`` (flat configurations, may be empty)."""
    own = evidence[0]
    leftovers, requested, resolved = (fact(own, name) for name in ("leftovers", "requested", "resolved"))
    if not isinstance(leftovers, list) or not isinstance(requested, dict) or not isinstance(resolved, dict):
        raise missing(own, "facts.leftovers, facts.requested and facts.resolved")
    measure = RestoreMeasure(leftovers=tuple(str(one) for one in leftovers), fields=pairs(requested, resolved))
    return sample(evidence, measure)
