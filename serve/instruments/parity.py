"""Desk parity: the cases that the desk ran, as it wrote them down."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import ValidationError

from runner.model.desk_measure import ParityCase, ParityMeasure
from runner.model.evidence import Evidence
from runner.model.plan import PlannedWindow
from runner.model.sample import Sample
from serve.instruments.answers import fact, missing
from serve.instruments.base import sample

NAME = "parity"
VERSION = 1


def reduce(evidence: Sequence[Evidence], window: PlannedWindow) -> Sample:
    """Facts ``cases``: one object a case with the fields of ``ParityCase``; a malformed case is a fault."""
    own = evidence[0]
    listed = fact(own, "cases")
    if not isinstance(listed, list):
        raise missing(own, "facts.cases")
    cases, faults = [], []
    for index, one in enumerate(listed):
        try:
            cases.append(ParityCase.model_validate(one))
        except ValidationError as error:
            faults.append(f"case {index} is malformed: {error.errors()[0]['msg']}")
    return sample(evidence, ParityMeasure(cases=tuple(cases)), faults)
