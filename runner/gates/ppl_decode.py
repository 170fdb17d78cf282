"""``ppl-decode``: documents forced token by token, at rows the decode kernel takes, are no worse."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf

from runner.gates.base import GateInput, Limit
from runner.gates.common import Decision, Reading, decide, figure, invalid, of_kind, verdict
from runner.gates.likelihood import PerplexityParameters, measure_of, noninferior, perplexity
from runner.model.sample import DocumentMeasure, PerplexityMeasure
from runner.model.verdict import Verdict
from runner.stats import BEYOND

NAME = "ppl-decode"
VERSION = 1


class Parameters(PerplexityParameters):
    """How much worse a document may become at decode-size rows."""

    control: Limit = "0.001"
    """Largest relative difference of perplexity between the incumbent forced and the incumbent read row by row."""


def judge(given: GateInput) -> Verdict:
    """Non-inferiority with the document as unit; INVALID where the candidate's window is a control (SF-01).

    Where the plan has a window in a boot of one row, forcing itself is checked: INVALID where it disagrees.
    """
    return verdict(NAME, VERSION, decide(Parameters, (PerplexityMeasure,), given, _decide))


def _decide(wanted: Parameters, readings: tuple[Reading, ...], given: GateInput) -> Decision:
    vacuous = [one.window.id for one in readings if one.window.arm == "candidate" and one.window.control]
    if vacuous:
        return invalid(*(f"{window}: a control window proves nothing about the candidate" for window in vacuous))
    one_row = {boot.id for boot in given.planned_boots if boot.role == "one-row"}
    forced = tuple(one for one in readings if one.window.boot not in one_row)
    decision, incumbent = noninferior(wanted, forced, given), measure_of(forced, "incumbent")
    if incumbent is None:
        return decision
    controls = tuple(one for one in readings if one.window.boot in one_row)
    for reading, control in of_kind(controls, PerplexityMeasure):
        difference = _difference(incumbent.documents, control.documents)
        if difference is None:
            return invalid(f"{reading.window.id}: its documents are not among the forced ones")
        if difference > float(wanted.control):
            return invalid(
                f"forced decode and one row at a time differ by {difference:.3g} of the incumbent's perplexity, "
                f"the limit {wanted.control}"
            )
        seen = figure("forced against one row", difference, unit="of perplexity", limit=f"<= {wanted.control}")
        decision = replace(decision, figures=(*decision.figures, seen))
    return decision


def _difference(forced: Sequence[DocumentMeasure], control: Sequence[DocumentMeasure]) -> float | None:
    """Relative difference of perplexity over the control's documents; None where they are not all among the forced."""
    tokens = {(one.id, one.tokens) for one in control if one.tokens}
    same = [one for one in forced if (one.id, one.tokens) in tokens]
    if not same or len(same) != len(control):
        return None
    read = perplexity(control)
    return inf if read == BEYOND else abs(perplexity(same) / read - 1)
