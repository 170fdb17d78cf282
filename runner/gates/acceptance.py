"""``acceptance``: the draft model's tokens are accepted as often as they were, in every language."""

from __future__ import annotations

from runner.gates.base import GateInput, GateParameters, Limit
from runner.gates.common import Decision, Reading, by_limits, decide, figure, invalid, of_kind, verdict
from runner.model.engine_measure import AcceptanceMeasure
from runner.model.verdict import Figure, Status, Verdict

NAME = "acceptance"
VERSION = 1


class Parameters(GateParameters):
    """Acceptance length: tokens a step of the engine makes, the accepted ones and one of its own."""

    lost: Limit = "0.05"
    """Largest share of the incumbent's acceptance length that the candidate may lose in a language."""
    least: dict[str, Limit] = {}
    """Least acceptance length by language, whatever the incumbent's is."""
    drafts: int = 100
    """Fewest verified drafts of a window; fewer decide nothing."""


def judge(given: GateInput) -> Verdict:
    """FAIL naming the language; UNRESOLVED where too little was drafted. Windows without speculation have length 1."""
    return verdict(NAME, VERSION, decide(Parameters, (AcceptanceMeasure,), given, _decide))


def _decide(wanted: Parameters, readings: tuple[Reading, ...], given: GateInput) -> Decision:
    found = [(one, measure) for one, measure in of_kind(readings, AcceptanceMeasure) if _speculates(one)]
    if not found:
        return invalid("no window speculates")
    lengths: dict[tuple[str, str], float] = {
        (reading.window.arm, measure.language): _length(measure) for reading, measure in found
    }
    languages = {measure.language for _, measure in found}
    if absent := sorted(wanted.least.keys() - languages):
        return invalid(f"no window in {', '.join(absent)}")
    judged = "candidate" if any(arm == "candidate" for arm, _ in lengths) else "incumbent"
    failures, figures, few = [], [], []
    for reading, measure in found:
        name = reading.window.id
        figures += _figures(name, measure, wanted)
        if measure.drafts < wanted.drafts:
            few.append(f"{name}: {measure.drafts} drafts, at least {wanted.drafts} are needed")
    for language in sorted(languages):
        length, before = lengths.get((judged, language)), lengths.get(("incumbent", language))
        if length is None or before is None:
            return invalid(f"{language}: only one arm was measured")
        if length < before * (1 - float(wanted.lost)):
            failures.append(f"{language}: {length:.3f} tokens a step, the incumbent's {before:.3f}")
        if length < float(least := wanted.least.get(language, "0")):
            failures.append(f"{language}: {length:.3f} tokens a step, at least {least}")
    if few and not failures:
        return Decision(Status.UNRESOLVED, tuple(few), tuple(figures))
    return by_limits(failures, tuple(figures), "drafts are accepted as before in every language")


def _speculates(reading: Reading) -> bool:
    return reading.window.arguments.get("speculates") is True


def _length(measure: AcceptanceMeasure) -> float:
    return 1 + measure.accepted_tokens / measure.drafts if measure.drafts else 1.0


def _figures(name: str, measure: AcceptanceMeasure, wanted: Parameters) -> list[Figure]:
    least = wanted.least.get(measure.language, "")
    told = [
        figure(f"{name} length", _length(measure), unit="tokens a step", limit=f">= {least}" if least else ""),
        figure(f"{name} drafts", measure.drafts, limit=f">= {wanted.drafts}"),
    ]
    return told + [
        figure(f"{name} accepted at position {position}", accepted / max(measure.drafts, 1))
        for position, accepted in enumerate(measure.accepted_by_position)
    ]
