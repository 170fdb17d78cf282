"""``sanitizer``: no fault in memory or synchronisation, by tools that were seen to find one."""

from __future__ import annotations

from runner.gates.base import GateInput, GateParameters
from runner.gates.common import Decision, Reading, by_limits, decide, figure, invalid, of_kind, verdict
from runner.model.desk_measure import SanitizerMeasure
from runner.model.verdict import Verdict

NAME = "sanitizer"
VERSION = 1


class Parameters(GateParameters):
    """compute-sanitizer on the kernels under test (campaign gate B20)."""

    tools: tuple[str, ...] = ("memcheck", "racecheck", "initcheck", "synccheck")
    """Tools that must have watched."""


def judge(given: GateInput) -> Verdict:
    """FAIL for any error; INVALID where a tool is missing, saw no launch, or did not find its planted fault."""
    return verdict(NAME, VERSION, decide(Parameters, (SanitizerMeasure,), given, _decide))


def _decide(wanted: Parameters, readings: tuple[Reading, ...], given: GateInput) -> Decision:
    tools = [tool for _, measure in of_kind(readings, SanitizerMeasure) for tool in measure.tools]
    faults = [f"{name}: did not run" for name in wanted.tools if name not in {tool.tool for tool in tools}]
    for tool in tools:
        if tool.planted_errors < 1:
            faults.append(f"{tool.tool}: did not find its planted fault")
        if tool.launches < 1:
            faults.append(f"{tool.tool}: the kernels under test did not run")
        if tool.errors < 0:
            faults.append(f"{tool.tool}: gave no summary")
    if faults:
        return invalid(*faults)
    failures = [f"{tool.tool}: {tool.errors} errors" for tool in tools if tool.errors]
    figures = tuple(figure(f"{tool.tool} errors", tool.errors, limit="<= 0") for tool in tools)
    return by_limits(failures, figures, "every tool is clean, and each found its planted fault")
