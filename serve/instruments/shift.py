"""How far a deliberate change on one rank moves the logprobs of forced tokens, against a plain repeat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import sqrt
from typing import Any

from pydantic import JsonValue

from runner.model.base import decimal_text
from runner.model.evidence import Evidence, Exchange
from runner.model.plan import PlannedWindow
from runner.model.sample import RankShift, Sample, ShiftMeasure
from runner.stats import total
from serve.instruments.answers import material
from serve.instruments.base import sample
from serve.instruments.likelihood import by_id, forced_logprobs, state_faults

BEFORE, REPEAT = "before", "repeat"


def reduce(evidence: Sequence[Evidence], window: PlannedWindow) -> Sample:
    """Root mean square shift of each rank and of the repeat, in nats.

    ``facts["predicted"]``, where a reference forward gave it, maps a rank to the logprob changes it predicts, document
    after document.
    """
    own = evidence[0]
    texts, exchanges, faults = material(own, "texts"), by_id(own), state_faults(own)
    before = _read(BEFORE, texts, exchanges, faults)
    repeat = _read(REPEAT, texts, exchanges, faults)
    predicted = own.facts.get("predicted")
    shifts = []
    for rank in sorted(counters.rank for counters in own.counters_before):
        changed = _read(f"rank{rank}", texts, exchanges, faults)
        moved = [later - earlier for earlier, later in zip(before, changed, strict=False)]
        expected = predicted.get(str(rank)) if isinstance(predicted, dict) else None
        shifts.append(_rank_shift(rank, moved, expected, faults))
    if not shifts:
        faults.append("no rank was changed")
    floor = _root_mean_square([later - earlier for earlier, later in zip(before, repeat, strict=False)])
    return sample(evidence, ShiftMeasure(ranks=tuple(shifts), floor=decimal_text(floor)), faults)


def _read(phase: str, texts: Mapping[str, Any], exchanges: Mapping[str, Exchange], faults: list[str]) -> list[float]:
    """Logprobs of all documents of one phase, one after the other."""
    values: list[float] = []
    for identifier, text in texts.items():
        name = f"{phase}/{identifier}"
        if name not in exchanges:
            faults.append(f"{name}: never asked")
            continue
        found, fault = forced_logprobs(exchanges[name], text["tokens"])
        if fault:
            faults.append(f"{name}: {fault}")
        values += found
    return values


def _rank_shift(rank: int, moved: list[float], predicted: JsonValue, faults: list[str]) -> RankShift:
    observed = decimal_text(_root_mean_square(moved))
    if predicted is None:
        return RankShift(rank=rank, observed=observed)
    changes = [float(str(change)) for change in predicted] if isinstance(predicted, list) else []
    if len(changes) != len(moved):
        faults.append(f"rank {rank}: {len(changes)} changes predicted for {len(moved)} tokens")
        return RankShift(rank=rank, observed=observed)
    expected = _root_mean_square(changes)
    error = _root_mean_square([seen - value for seen, value in zip(moved, changes, strict=True)])
    return RankShift(
        rank=rank,
        observed=observed,
        predicted=decimal_text(expected),
        error=decimal_text(error / expected) if expected else None,
    )


def _root_mean_square(values: Sequence[float]) -> float:
    return sqrt(total(value * value for value in values) / len(values)) if values else 0.0
