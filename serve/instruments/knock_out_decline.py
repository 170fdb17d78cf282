"""Whether strict refused a boot whose library declines every call."""

from __future__ import annotations

import re
from collections.abc import Sequence

from runner.model.evidence import Evidence
from runner.model.plan import PlannedWindow
from runner.model.sample import RefusalMeasure, Sample
from serve.instruments.answers import choice, error_text, fact
from serve.instruments.base import sample

NAME = "knock-out-decline"
VERSION = 1

_RANK = re.compile(r"\brank[ =:]?(\d+)")


def reduce(evidence: Sequence[Evidence], window: PlannedWindow) -> Sample:
    """Refused at the start, or at the first request; the reason is the engine's own."""
    own = evidence[0]
    ended, reason = str(fact(own, "ended")), str(fact(own, "reason"))
    failed = [error_text(exchange) for exchange in own.exchanges if choice(exchange) is None]
    if ended == "running" and failed:
        reason = failed[0]
    measure = RefusalMeasure(
        refused=ended == "refused" or bool(failed),
        reason=reason or f"the boot was {ended}",
        ranks=tuple(sorted({int(rank) for rank in _RANK.findall(reason)})),
    )
    return sample(evidence, measure)
