"""``finish``: free-running texts end for a reason that is allowed, and none is empty."""

from __future__ import annotations

from runner.gates.base import GateInput, GateParameters, Limit
from runner.gates.common import Decision, Reading, by_limits, decide, figure, of_kind, verdict
from runner.model.sample import FinishMeasure
from runner.model.verdict import Verdict

NAME = "finish"
VERSION = 1


class Parameters(GateParameters):
    """How texts may end."""

    allowed: tuple[str, ...] = ("stop", "length")
    """Finish reasons."""
    tokens: int = 1
    """Fewest tokens of a text."""
    stopped: Limit = "0"
    """Least share of texts that end by ``stop`` inside the fixed budget (FL-64)."""


def judge(given: GateInput) -> Verdict:
    """FAIL for any text that ends otherwise or too early."""
    return verdict(NAME, VERSION, decide(Parameters, (FinishMeasure,), given, _decide))


def _decide(wanted: Parameters, readings: tuple[Reading, ...], given: GateInput) -> Decision:
    texts = [text for _, measure in of_kind(readings, FinishMeasure) for text in measure.texts]
    failures = [
        f"{text.id}: finished by {text.finish_reason!r}" for text in texts if text.finish_reason not in wanted.allowed
    ]
    failures += [
        f"{text.id}: {text.completion_tokens} tokens, at least {wanted.tokens}"
        for text in texts
        if text.completion_tokens < wanted.tokens
    ]
    stopped = sum(text.finish_reason == "stop" for text in texts) / len(texts) if texts else 0.0
    if not texts:
        failures.append("no text was written")
    if stopped < float(wanted.stopped):
        failures.append(f"{stopped:.2f} of the texts stopped by themselves, at least {wanted.stopped}")
    figures = (figure("texts", len(texts)), figure("stopped by themselves", stopped, limit=f">= {wanted.stopped}"))
    return by_limits(failures, figures, "every text ended as allowed")
