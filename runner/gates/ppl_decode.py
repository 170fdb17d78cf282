"""``ppl-decode``: documents forced token by token, at rows the decode kernel takes, are no worse."""

from __future__ import annotations

from runner.gates.base import GateInput
from runner.gates.common import Decision, Reading, decide, invalid, verdict
from runner.gates.likelihood import PerplexityParameters, noninferior
from runner.model.sample import PerplexityMeasure
from runner.model.verdict import Verdict

NAME = "ppl-decode"
VERSION = 1


class Parameters(PerplexityParameters):
    """How much worse a document may become at decode-size rows."""


def judge(given: GateInput) -> Verdict:
    """Non-inferiority with the document as unit; INVALID where the candidate's window is a control (SF-01)."""
    return verdict(NAME, VERSION, decide(Parameters, (PerplexityMeasure,), given, _decide))


def _decide(wanted: Parameters, readings: tuple[Reading, ...], given: GateInput) -> Decision:
    vacuous = [one.window.id for one in readings if one.window.arm == "candidate" and one.window.control]
    if vacuous:
        return invalid(*(f"{window}: a control window proves nothing about the candidate" for window in vacuous))
    return noninferior(wanted, readings, given)
