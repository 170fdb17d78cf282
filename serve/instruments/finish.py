"""How free-running completions end."""

from __future__ import annotations

from collections.abc import Sequence

from runner.model.evidence import Evidence
from runner.model.plan import PlannedWindow
from runner.model.sample import FinishMeasure, Sample
from serve.instruments.base import sample
from serve.instruments.streams import read_texts

NAME = "finish"
VERSION = 1


def reduce(evidence: Sequence[Evidence], window: PlannedWindow) -> Sample:
    """Finish reason and length of each text."""
    texts, faults = read_texts(evidence[0])
    return sample(evidence, FinishMeasure(texts=tuple(texts)), faults)
