"""``resolved``: what was asked of the engine is what the live engine says, in every boot."""

from __future__ import annotations

from runner.gates.base import GateInput, GateParameters
from runner.gates.common import Decision, by_limits, invalid, parse, verdict
from runner.model.boot import BootRecord
from runner.model.configuration import pairs
from runner.model.verdict import Figure, Status, Verdict

NAME = "resolved"
VERSION = 1


class Parameters(GateParameters):
    """What is not compared."""

    ignored: tuple[str, ...] = ()
    """Requested names that this engine answers for under no name; each is named in the report."""


def judge(given: GateInput) -> Verdict:
    """FAIL for every requested field that resolved to something else or to nothing; reads boots, not samples."""
    return verdict(NAME, VERSION, _decide(given))


def _decide(given: GateInput) -> Decision:
    wanted = parse(Parameters, given)
    if isinstance(wanted, Decision):
        return wanted
    planned = {window.boot for window in given.windows}
    engines = [boot for boot in given.planned_boots if boot.id in planned and boot.role != "desk"]
    if not engines:
        return invalid("the gate reads no boot of an engine")
    if not given.boots:
        return Decision(Status.NOT_RUN, ("nothing was booted",))
    faults, failures, compared = [], [], 0
    for boot in engines:
        records = [record for record in given.boots if record.planned == boot.id]
        if not records:
            faults.append(f"boot {boot.id} left no record")
        for record in records:
            if record.ended == "refused" and boot.role.startswith("knock-out"):
                continue  # refused as planned: nothing was ever resolved
            if not record.requested or not record.resolved:
                faults.append(
                    f"boot {record.id} has no {'resolved' if record.requested else 'requested'} configuration"
                )
                continue
            found = _differences(record, wanted.ignored)
            compared += len(record.requested)
            failures += found
    if faults:
        return invalid(*faults)
    figures = (
        Figure(name="fields compared", value=str(compared)),
        Figure(name="fields ignored", value=", ".join(wanted.ignored) or "none"),
    )
    return by_limits(failures, figures, "every requested field resolved as asked")


def _differences(record: BootRecord, ignored: tuple[str, ...]) -> list[str]:
    return [
        f"boot {record.id}: {pair.name} was asked as {pair.requested}, the engine says {pair.resolved}"
        for pair in pairs(record.requested, record.resolved)
        if pair.name not in ignored and pair.requested != pair.resolved
    ]
