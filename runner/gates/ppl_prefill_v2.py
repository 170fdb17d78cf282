"""``ppl-prefill`` from version 2 on: as before, and every language of the documents decides by itself."""

from __future__ import annotations

from typing import Literal

from runner.gates.base import GateInput
from runner.gates.common import decide, verdict
from runner.gates.likelihood import noninferior_by_class
from runner.gates.ppl_prefill import Parameters as Before
from runner.model.sample import PerplexityMeasure
from runner.model.verdict import Verdict

NAME = "ppl-prefill"
VERSION = 2


class Parameters(Before):
    """How much worse a document of any language may become at prefill-size rows."""

    classes: Literal["each"] = "each"
    """No order can ask for less: each language's median document and mean loss lie inside the margin."""


def judge(given: GateInput) -> Verdict:
    """Non-inferiority with the document as unit in every language; a control window is enough where the candidate
    declines these rows.
    """
    return verdict(NAME, VERSION, decide(Parameters, (PerplexityMeasure,), given, noninferior_by_class))
