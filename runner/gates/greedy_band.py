"""``greedy-band``: greedy texts are the incumbent's, but for tokens that were as good as equally likely."""

from __future__ import annotations

from runner.gates.base import GateInput, GateParameters, Limit
from runner.gates.common import Decision, Reading, by_limits, decide, figure, invalid, of_kind, verdict
from runner.model.engine_measure import BandText, GreedyBandMeasure
from runner.model.verdict import Figure, Status, Verdict

NAME = "greedy-band"
VERSION = 1


class Parameters(GateParameters):
    """What a tie is, and how much text there has to be."""

    tie: Limit = "0.0001"
    """Largest gap in nats that rounding explains. In float32 logprobs differ by up to 2e-6 between batches, in bfloat16
    by up to 0.027."""
    tokens: int = 256
    """Fewest tokens compared over all texts of a window, those before the first difference alone."""


def judge(given: GateInput) -> Verdict:
    """FAIL naming text and position; UNRESOLVED where the incumbent against itself parts by more than a tie.

    With speculation the text must be the same as without: a draft only proposes, the model decides.
    """
    return verdict(NAME, VERSION, decide(Parameters, (GreedyBandMeasure,), given, _decide))


def _decide(wanted: Parameters, readings: tuple[Reading, ...], given: GateInput) -> Decision:
    found = [
        (one, measure)
        for one, measure in of_kind(readings, GreedyBandMeasure)
        if measure.reference_window != one.window.id
    ]
    judged = [(one, measure) for one, measure in found if not one.window.arguments.get("again")]
    if not judged:
        return invalid("nothing is compared with the reference")
    failures: list[str] = []
    figures: list[Figure] = []
    moved: list[str] = []
    short: list[str] = []
    for reading, measure in found:
        name, parted = reading.window.id, [text for text in measure.texts if text.common < text.tokens]
        told = [f"{name}, {_where(text)}" for text in parted if _beyond(text, wanted)]
        compared = sum(text.common for text in measure.texts)
        (moved if reading.window.arguments.get("again") else failures).extend(told)
        if compared < wanted.tokens:
            short.append(f"{name}: {compared} tokens were compared, at least {wanted.tokens} are needed")
        figures += [
            figure(f"{name} texts that part", len(parted), unit=f"of {len(measure.texts)}"),
            figure(f"{name} widest gap", _widest(parted), unit="nats", limit=f"<= {wanted.tie}"),
            figure(f"{name} shortest common", min((text.common for text in measure.texts), default=0), unit="tokens"),
        ]
    if moved:
        return Decision(Status.UNRESOLVED, tuple(moved), tuple(figures))
    if short and not failures:
        return Decision(Status.UNRESOLVED, tuple(short), tuple(figures))
    return by_limits(failures, tuple(figures), "texts part only where two tokens were as good as equally likely")


def _beyond(text: BandText, wanted: Parameters) -> bool:
    """A token that the reference does not even name among its likeliest is no tie."""
    return text.gap is None or float(text.gap) > float(wanted.tie)


def _widest(parted: list[BandText]) -> float:
    return max((float(text.gap or 0) for text in parted), default=0.0)


def _where(text: BandText) -> str:
    gap = f"{float(text.gap):.3g} nats less likely" if text.gap is not None else "not among the likeliest"
    return f"{text.id}: another token after {text.common}, {gap}"
