"""``pack``: the served pack is closed, complete, and the one the order names."""

from __future__ import annotations

from runner.gates.base import GateInput, GateParameters
from runner.gates.common import Decision, Reading, by_limits, decide, of_kind, verdict
from runner.model.base import Digest
from runner.model.sample import PackMeasure
from runner.model.verdict import Figure, Verdict

NAME = "pack"
VERSION = 1


class Parameters(GateParameters):
    """What the pack must be."""

    header_digest: Digest | None = None
    """Digest over all tensor headers, where the order fixes it."""
    payload_digest: Digest | None = None
    """Digest over all payload bytes, where the order fixes it."""


def judge(given: GateInput) -> Verdict:
    """FAIL for any closure or census fault and for another pack than the order's."""
    return verdict(NAME, VERSION, decide(Parameters, (PackMeasure,), given, _decide))


def _decide(wanted: Parameters, readings: tuple[Reading, ...], given: GateInput) -> Decision:
    failures: list[str] = []
    figures: list[Figure] = []
    for _, pack in of_kind(readings, PackMeasure):
        failures += pack.faults
        for name, expected, found in (
            ("header digest", wanted.header_digest, pack.header_digest),
            ("payload digest", wanted.payload_digest, pack.payload_digest),
        ):
            figures.append(Figure(name=name, value=found, limit=expected or ""))
            if expected is not None and found != expected:
                failures.append(f"{name} is {found}, the order names {expected}")
    return by_limits(failures, tuple(figures), "the pack is closed and complete")
