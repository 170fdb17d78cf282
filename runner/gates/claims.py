"""``claims``: the order's standing facts, derived again by their probes."""

from __future__ import annotations

from runner.gates.base import GateInput, GateParameters
from runner.gates.common import Decision, Reading, by_limits, decide, figure, invalid, of_kind, verdict
from runner.model.sample import ClaimsMeasure
from runner.model.verdict import Figure, Status, Verdict

NAME = "claims"
VERSION = 1


class Parameters(GateParameters):
    """How much may rest on evidence alone."""

    unseen: int = 0
    """Most claims at which nobody could look again: without a probe, or with its pack or file elsewhere."""


def judge(given: GateInput) -> Verdict:
    """FAIL for a claim that its probe contradicts, UNRESOLVED for more unseen ones than the order allows."""
    return verdict(NAME, VERSION, decide(Parameters, (ClaimsMeasure,), given, _decide))


def _decide(wanted: Parameters, readings: tuple[Reading, ...], given: GateInput) -> Decision:
    planned = [str(name) for reading in readings for name in _listed(reading.window.arguments.get("claims"))]
    claims = [claim for _, measure in of_kind(readings, ClaimsMeasure) for claim in measure.claims]
    if sorted(claim.fact for claim in claims) != sorted(planned):
        return invalid(f"looked at {len(claims)} claims, the plan names {len(planned)}, or they are others")
    seen = [claim for claim in claims if claim.agrees is not None]
    if not seen:
        return invalid("no claim was looked at: nothing was shown")
    figures = [Figure(name=claim.fact, value=claim.found, limit=claim.stated) for claim in claims]
    figures.append(figure("unseen", len(claims) - len(seen), limit=f"<= {wanted.unseen}"))
    wrong = [f"{claim.fact}: {claim.stated} is stated, found was {claim.found}" for claim in seen if not claim.agrees]
    if not wrong and len(claims) - len(seen) > wanted.unseen:
        names = ", ".join(claim.fact for claim in claims if claim.agrees is None)
        return Decision(Status.UNRESOLVED, (f"nobody could look at {names}",), tuple(figures))
    return by_limits(wrong, tuple(figures), f"{len(seen)} of {len(claims)} claims were derived again")


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else []
