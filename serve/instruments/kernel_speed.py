"""Kernel times against one incumbent library, as the desk wrote them down."""

from __future__ import annotations

from collections.abc import Sequence

from runner.model.desk_measure import KernelSpeedMeasure
from runner.model.evidence import Evidence
from runner.model.plan import PlannedWindow
from runner.model.sample import Sample
from serve.instruments.answers import whole
from serve.instruments.base import sample

NAME = "kernel-speed"
VERSION = 1


def reduce(evidence: Sequence[Evidence], window: PlannedWindow) -> Sample:
    """The facts are the fields of ``KernelSpeedMeasure``, no more and no less."""
    return sample(evidence, whole(evidence[0], KernelSpeedMeasure))
