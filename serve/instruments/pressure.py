"""Floors of the card, and the kernel without its decoding, as the desk wrote them down."""

from __future__ import annotations

from collections.abc import Sequence

from runner.model.desk_measure import PressureMeasure
from runner.model.evidence import Evidence
from runner.model.plan import PlannedWindow
from runner.model.sample import Sample
from serve.instruments.answers import whole
from serve.instruments.base import sample

NAME = "pressure"
VERSION = 1


def reduce(evidence: Sequence[Evidence], window: PlannedWindow) -> Sample:
    """The facts are the fields of ``PressureMeasure``, no more and no less."""
    return sample(evidence, whole(evidence[0], PressureMeasure))
