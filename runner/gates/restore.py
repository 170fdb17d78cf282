"""``restore``: nothing of ours outlived the boots, and the standing configuration came back."""

from __future__ import annotations

from runner.gates.base import GateInput, GateParameters
from runner.gates.common import Decision, Reading, by_limits, decide, figure, of_kind, verdict
from runner.model.sample import RestoreMeasure
from runner.model.verdict import Verdict

NAME = "restore"
VERSION = 1


class Parameters(GateParameters):
    """What is not compared."""

    ignored: tuple[str, ...] = ()
    """Names of the standing configuration that this seat answers for under no name."""


def judge(given: GateInput) -> Verdict:
    """FAIL for a leftover process, port, shared memory or folder, and for a field that did not come back (FL-10)."""
    return verdict(NAME, VERSION, decide(Parameters, (RestoreMeasure,), given, _decide))


def _decide(wanted: Parameters, readings: tuple[Reading, ...], given: GateInput) -> Decision:
    measures = [measure for _, measure in of_kind(readings, RestoreMeasure)]
    failures = [f"left behind: {leftover}" for measure in measures for leftover in measure.leftovers]
    failures += [f"boot {boot.id} left behind: {leftover}" for boot in given.boots for leftover in boot.leftovers]
    fields = [pair for measure in measures for pair in measure.fields if pair.name not in wanted.ignored]
    failures += [
        f"{pair.name} stood at {pair.requested} and is {pair.resolved}"
        for pair in fields
        if pair.requested != pair.resolved
    ]
    figures = (figure("boots", len(given.boots)), figure("fields compared", len(fields)))
    return by_limits(failures, figures, "nothing was left behind")
