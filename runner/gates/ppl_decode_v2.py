"""``ppl-decode`` from version 2 on: as before, and every language of the documents decides by itself."""

from __future__ import annotations

from typing import Literal

from runner.gates.base import GateInput
from runner.gates.common import Decision, Reading, decide, verdict
from runner.gates.likelihood import noninferior_by_class
from runner.gates.ppl_decode import Parameters as Before
from runner.gates.ppl_decode import decide_forced
from runner.model.sample import PerplexityMeasure
from runner.model.verdict import Verdict

NAME = "ppl-decode"
VERSION = 2


class Parameters(Before):
    """How much worse a document of any language may become at decode-size rows."""

    classes: Literal["each"] = "each"
    """No order can ask for less: each language's median document and mean loss lie inside the margin."""


def judge(given: GateInput) -> Verdict:
    """Non-inferiority with the document as unit in every language; forcing is checked as in version 1."""
    return verdict(NAME, VERSION, decide(Parameters, (PerplexityMeasure,), given, _decide))


def _decide(wanted: Parameters, readings: tuple[Reading, ...], given: GateInput) -> Decision:
    return decide_forced(wanted, readings, given, noninferior_by_class)
