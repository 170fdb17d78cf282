"""``memory`` from version 2 on: what was never predicted is no prediction kept."""

from __future__ import annotations

from runner.gates import memory
from runner.gates.base import GateInput
from runner.gates.common import Decision, Reading, decide, invalid, of_kind, verdict
from runner.model.answer_measure import MemoryMeasure
from runner.model.verdict import Verdict

NAME = "memory"
VERSION = 2

Parameters = memory.Parameters


def judge(given: GateInput) -> Verdict:
    """As version 1; INVALID also where a rank of the boot is missing, or has no prediction of a name that needs one."""
    return verdict(NAME, VERSION, decide(Parameters, (MemoryMeasure,), given, lambda *all_of: _decide(given, *all_of)))


def _decide(whole: GateInput, wanted: memory.Parameters, readings: tuple[Reading, ...], given: GateInput) -> Decision:
    if not {*wanted.predicted, *wanted.most, *wanted.least}:
        return invalid("no name has to be predicted, and none has a limit: nothing would be judged")
    measured, ranks = (
        of_kind(readings, MemoryMeasure),
        {boot.id: [one.rank for one in boot.ranks] for boot in given.boots},
    )
    for reading, measure in measured:
        name = reading.window.id
        if sorted(rank.rank for rank in measure.ranks) != sorted(ranks[reading.sample.boot]):
            return invalid(f"{name}: not every rank of the boot was looked at, or one twice")
        if unknown := [
            (rank.rank, one) for rank in measure.ranks for one in wanted.predicted if one not in rank.predicted
        ]:
            return invalid(*(f"{name}, rank {rank}: nothing was predicted of {one}" for rank, one in unknown))
    first = memory.judge(whole)
    return Decision(first.status, first.reasons, first.figures)
