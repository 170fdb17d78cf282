"""``ppl-prefill``: documents scored at prefill-size rows are no worse. Says nothing about a decode kernel."""

from __future__ import annotations

from runner.gates.base import GateInput
from runner.gates.common import decide, verdict
from runner.gates.likelihood import PerplexityParameters, noninferior
from runner.model.sample import PerplexityMeasure
from runner.model.verdict import Verdict

NAME = "ppl-prefill"
VERSION = 1


class Parameters(PerplexityParameters):
    """How much worse a document may become at prefill-size rows."""


def judge(given: GateInput) -> Verdict:
    """Non-inferiority with the document as unit; a control window is enough where the candidate declines these rows."""
    return verdict(NAME, VERSION, decide(Parameters, (PerplexityMeasure,), given, noninferior))
