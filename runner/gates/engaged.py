"""``engaged``: in every window that is no control the candidate ran, on every rank, layer and declared row count."""

from __future__ import annotations

from runner.gates.base import GateInput, GateParameters
from runner.gates.common import Decision, counting_sample, invalid, layers_of, on_desk, parse, verdict
from runner.gates.engagement import INCUMBENT, counted_layers, engagement_faults, operator_of
from runner.model.base import ROUTED, Operator
from runner.model.verdict import Figure, Status, Verdict

NAME = "engaged"
VERSION = 1

FIGURES: dict[Operator, str] = {ROUTED: "routed layers", "linear": "linear modules"}


class Parameters(GateParameters):
    """Nothing to set: the plan's expectations decide."""


def judge(given: GateInput) -> Verdict:
    """INVALID naming rank, layer and reason wherever the declared path did not run; there is no FAIL."""
    return verdict(NAME, VERSION, _decide(given))


def _decide(given: GateInput) -> Decision:
    wanted = parse(Parameters, given)
    if isinstance(wanted, Decision):
        return wanted
    if not given.samples:
        return Decision(Status.NOT_RUN, ("no sample was taken",))
    faults, launches, proved = [], 0, 0
    operator, layers = ROUTED, layers_of(given)
    for window in given.windows:
        if on_desk(given, window) or window.control:
            continue
        sample, fault = counting_sample(given, window)
        if sample is None:
            faults.append(fault)
            continue
        operator = operator_of(window)
        faults += engagement_faults(sample, window, given.boots, layers(window))
        counted = [
            row.launches for one in sample.engagement for row in one.witness if not row.variant.startswith(INCUMBENT)
        ]
        launches += sum(counted)
        proved += any(counted)
    if not proved:
        faults.append("no window that is no control ran a candidate")
    if faults:
        return invalid(*faults)
    figures = (
        Figure(name="windows proved", value=str(proved)),
        Figure(name="candidate launches", value=str(launches)),
        Figure(name=FIGURES[operator], value=str(len(counted_layers(given.samples, operator)))),
    )
    return Decision(Status.PASS, ("the declared path ran in every window, on every rank and layer",), figures)
