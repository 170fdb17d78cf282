"""What compute-sanitizer said, as the desk wrote it down."""

from __future__ import annotations

from collections.abc import Sequence

from runner.model.desk_measure import SanitizerMeasure
from runner.model.evidence import Evidence
from runner.model.plan import PlannedWindow
from runner.model.sample import Sample
from serve.instruments.answers import whole
from serve.instruments.base import sample

NAME = "sanitizer"
VERSION = 1


def reduce(evidence: Sequence[Evidence], window: PlannedWindow) -> Sample:
    """The facts are the fields of ``SanitizerMeasure``, no more and no less."""
    return sample(evidence, whole(evidence[0], SanitizerMeasure))
