"""Perplexity by teacher-forced decode, at decode-size rows."""

from __future__ import annotations

from collections.abc import Sequence

from runner.model.evidence import Evidence
from runner.model.plan import PlannedWindow
from runner.model.sample import Sample
from serve.instruments.base import sample
from serve.instruments.likelihood import perplexity

NAME = "ppl-decode"
VERSION = 1


def reduce(evidence: Sequence[Evidence], window: PlannedWindow) -> Sample:
    """Negative log-likelihood in nats of each document after its first token."""
    measure, faults = perplexity(evidence[0], forced=True)
    return sample(evidence, measure, faults)
