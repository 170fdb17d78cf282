"""The KV window as it was filled."""

from __future__ import annotations

from collections.abc import Sequence

from runner.model.evidence import Evidence
from runner.model.plan import PlannedWindow
from runner.model.sample import KvMeasure, Sample
from serve.instruments.answers import choice, error_text, fact, usage
from serve.instruments.base import sample
from serve.instruments.likelihood import state_faults
from serve.instruments.metrics import PREEMPTIONS, moved

NAME = "kv-window"
VERSION = 1

_BEYOND = "beyond"


def reduce(evidence: Sequence[Evidence], window: PlannedWindow) -> Sample:
    """Tokens held by the smallest fill (prompt and completion) and the answer to one token past the limit."""
    own = evidence[0]
    faults = state_faults(own)
    filled = []
    beyond = 0
    for exchange in own.exchanges:
        if exchange.id == _BEYOND:
            beyond = exchange.status
        elif choice(exchange) is None:
            faults.append(f"{exchange.id}: {error_text(exchange)}")
        else:
            filled.append(int(usage(exchange).get("total_tokens", 0)))
    if not filled:
        faults.append("nothing was filled")
    if not beyond:
        faults.append("one token past the limit was never asked for")
    measure = KvMeasure(
        max_model_len=_whole(fact(own, "max_model_len")),
        pool_tokens=_whole(fact(own, "kv_tokens")),
        filled_tokens=min(filled, default=0),
        preemptions=round(moved(own, PREEMPTIONS) or 0),
        beyond_limit_status=beyond,
    )
    return sample(evidence, measure, faults)


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0
