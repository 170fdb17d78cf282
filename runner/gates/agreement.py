"""``agreement``: another engine's logits of the served pack, against our own forward and against what is served."""

from __future__ import annotations

from runner.gates.base import GateInput, GateParameters, Limit
from runner.gates.common import Decision, Reading, decide, figure, invalid, of_kind, verdict
from runner.model.answer_measure import AgreementMeasure
from runner.model.verdict import Figure, Status, Verdict
from runner.stats import BEYOND, growth, total

NAME = "agreement"
VERSION = 1


class Parameters(GateParameters):
    """How far apart two engines of one pack may be."""

    times_noise: Limit = "2"
    """Largest distance of rows of logits from our own forward's, in units of what float16 products cost our forward: of
    the median row and of nine rows in ten. Rounding may flip an expert of a row here and there, so the largest distance
    is held against what another batch composition costs the other engine too."""
    largest: Limit = "0.5"
    """Most that any of these limits may become, whatever noise the other engine's record claims of itself."""
    perplexity: Limit = "0.001"
    """Largest relative difference of the other engine's perplexity from the served one."""
    documents: int = 8
    """Fewest documents of each record."""


def judge(given: GateInput) -> Verdict:
    """FAIL for logits outside the noise or another perplexity; INVALID where the record is not the sealed one."""
    return verdict(NAME, VERSION, decide(Parameters, (AgreementMeasure,), given, _decide))


def _decide(wanted: Parameters, readings: tuple[Reading, ...], given: GateInput) -> Decision:
    strangers, failures = [], []
    figures: list[Figure] = []
    for reading, measure in of_kind(readings, AgreementMeasure):
        name, sealed = measure.library, reading.window.arguments.get("digest")
        if measure.record != sealed:
            strangers.append(f"{reading.window.id}: record {measure.record}, sealed was {sealed}")
        if len(measure.documents) < max(wanted.documents, 1):
            strangers.append(f"{reading.window.id}: {len(measure.documents)} documents, at least {wanted.documents}")
            continue
        tokens = sum(document.tokens for document in measure.documents)
        served, theirs = (
            growth(total(float(getattr(document, which)) for document in measure.documents) / tokens)
            for which in ("served", "theirs")
        )
        if BEYOND in (served, theirs):
            strangers.append(f"{reading.window.id}: a perplexity beyond any number")
            continue
        difference = abs(theirs / served - 1)
        for part in ("median", "ninth_decile", "largest"):
            error, noise = float(getattr(measure.distance, part)), float(getattr(measure.float16, part))
            limit = float(wanted.times_noise) * (
                max(noise, float(measure.another_batch)) if part == "largest" else noise
            )
            limit = min(limit, float(wanted.largest))
            what = f"{part.replace('_', ' ')} relative error"
            figures.append(figure(f"{name}: {what}", error, limit=f"<= {limit:.6f}"))
            if error > limit:
                failures.append(f"{name}: {what} of logits {error:.6f}, the limit is {limit:.6f}")
        figures += [
            figure(f"{name}: perplexity", theirs),
            figure(f"{name}: served perplexity", served),
            figure(f"{name}: difference of perplexities", difference, limit=f"<= {wanted.perplexity}"),
        ]
        if difference > float(wanted.perplexity):
            failures.append(f"{name}: perplexity {theirs:.6f}, served is {served:.6f}")
    if strangers or not figures:
        return invalid(*strangers or ("no record was read",))
    passed = ("every record agrees with our forward and with what is served",)
    return Decision(Status.FAIL if failures else Status.PASS, tuple(failures) or passed, tuple(figures))
