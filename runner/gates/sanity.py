"""``sanity``: free-running text in three languages still looks like its language and does not run in a circle."""

from __future__ import annotations

from statistics import fmean

from runner.gates.base import GateInput, GateParameters, Limit
from runner.gates.common import Decision, Reading, by_limits, decide, figure, invalid, of_kind, verdict
from runner.model.answer_measure import SanityMeasure, SanityText
from runner.model.verdict import Verdict

NAME = "sanity"
VERSION = 1

LANGUAGES = ("en", "ja", "code")


class Parameters(GateParameters):
    """Shares of 0 to 1; a small model writes in circles of its own, so the incumbent is the yardstick."""

    lost: Limit = "0.2"
    """How far a language's mean share may lie below the incumbent's."""
    script: Limit = "0"
    """Least mean share of letters in the language's own script, whatever the incumbent's is."""
    distinct: Limit = "0"
    """Least mean share of different runs of four tokens, whatever the incumbent's is."""


def judge(given: GateInput) -> Verdict:
    """FAIL naming the language; whether text makes sense only a person sees."""
    return verdict(NAME, VERSION, decide(Parameters, (SanityMeasure,), given, _decide))


def _decide(wanted: Parameters, readings: tuple[Reading, ...], given: GateInput) -> Decision:
    incumbent, candidate = _texts(readings, "incumbent"), _texts(readings, "candidate")
    failures, figures = [], []
    judged = "candidate" if candidate else "incumbent"
    for language in LANGUAGES:
        before = [text for text in incumbent if text.language == language]
        after = [text for text in candidate or incumbent if text.language == language]
        if not before or not after:
            return invalid(f"{language}: no text of {'the candidate' if before else 'the incumbent'}")
        for name, least in (("script", wanted.script), ("distinct", wanted.distinct)):
            was, found = (fmean(float(getattr(text, name)) for text in texts) for texts in (before, after))
            figures.append(figure(f"{language} {name}, {judged}", found, limit=f">= {least}"))
            if found < was - float(wanted.lost):
                failures.append(f"{language}: {name} {found:.3f}, the incumbent's {was:.3f}")
            if found < float(least):
                failures.append(f"{language}: {name} {found:.3f}, at least {least}")
    return by_limits(failures, tuple(figures), "text looks as before in every language")


def _texts(readings: tuple[Reading, ...], arm: str) -> list[SanityText]:
    found = [measure for reading, measure in of_kind(readings, SanityMeasure) if reading.window.arm == arm]
    return [text for measure in found for text in measure.texts]
