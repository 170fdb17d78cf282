"""``agreement`` from version 2 on: every row within float16 noise, ties that rounding decides being told apart."""

from __future__ import annotations

from runner.gates.base import GateInput, GateParameters, Limit
from runner.gates.common import Decision, Reading, decide, figure, invalid, of_kind, verdict
from runner.model.answer_measure import AgreementMeasure, RoutedAgreement
from runner.model.verdict import Figure, Status, Verdict
from runner.stats import BEYOND, growth, total

NAME = "agreement"
VERSION = 2


class Parameters(GateParameters):
    """How far apart two engines of one pack may be."""

    times_noise: Limit = "2"
    """Largest distance of rows of logits from our own forward's, in units of what float16 products cost our forward: of
    the median row, of nine rows in ten and of every row. Where our choice of experts is a tie that float16 decides, our
    forward takes the other engine's side."""
    ties: Limit = "0.05"
    """Largest share of the choices of experts that may be ties: of another forward than ours nothing is proved."""
    perplexity: Limit = "0.001"
    """Largest relative difference of the other engine's perplexity from the served one."""
    documents: int = 8
    """Fewest documents of each record."""


def judge(given: GateInput) -> Verdict:
    """FAIL for logits outside the noise or another perplexity; INVALID for a record that is not the sealed one, for one
    whose ties were not told apart, and for too many ties."""
    return verdict(NAME, VERSION, decide(Parameters, (AgreementMeasure,), given, _decide))


def _decide(wanted: Parameters, readings: tuple[Reading, ...], given: GateInput) -> Decision:
    strangers, failures = [], []
    figures: list[Figure] = []
    for reading, measure in of_kind(readings, AgreementMeasure):
        routed = measure.routed
        if routed is None:
            strangers.append(f"{reading.window.id}: choices that rounding decides were not told apart")
        elif found := _unusable(wanted, reading, measure, routed):
            strangers += [f"{reading.window.id}: {one}" for one in found]
        else:
            failures += _judge(wanted, measure, routed, figures)
    if strangers or not figures:
        return invalid(*strangers or ("no record was read",))
    passed = ("every row of every record is our forward's within float16 noise, and the perplexity is the served one",)
    return Decision(Status.FAIL if failures else Status.PASS, tuple(failures) or passed, tuple(figures))


def _unusable(wanted: Parameters, reading: Reading, measure: AgreementMeasure, routed: RoutedAgreement) -> list[str]:
    found, sealed = [], reading.window.arguments.get("digest")
    if measure.record != sealed:
        found.append(f"record {measure.record}, sealed was {sealed}")
    if len(measure.documents) < max(wanted.documents, 1):
        found.append(f"{len(measure.documents)} documents, at least {wanted.documents}")
    elif BEYOND in _perplexities(measure):
        found.append("a perplexity beyond any number")
    if routed.ties > float(wanted.ties) * routed.choices:
        found.append(
            f"{routed.ties} of {routed.choices} choices of experts are ties, at most {wanted.ties} of them may"
        )
    return found


def _judge(wanted: Parameters, measure: AgreementMeasure, routed: RoutedAgreement, figures: list[Figure]) -> list[str]:
    """Failures of one record; its figures are added to ``figures``."""
    name, failures = measure.library, []
    for part in ("median", "ninth_decile", "largest"):
        error = float(getattr(routed.distance, part))
        limit = float(wanted.times_noise) * float(getattr(routed.float16, part))
        what = f"{part.replace('_', ' ')} relative error"
        figures.append(figure(f"{name}: {what}", error, limit=f"<= {limit:.6f}"))
        if error > limit:
            failures.append(f"{name}: {what} of logits {error:.6f}, the limit is {limit:.6f}")
    served, theirs = _perplexities(measure)
    difference = abs(theirs / served - 1)
    figures += [
        figure(f"{name}: choices of experts", routed.choices),
        figure(f"{name}: ties", routed.ties, limit=f"<= {float(wanted.ties) * routed.choices:g}"),
        figure(f"{name}: ties taken otherwise", routed.others),
        figure(f"{name}: largest relative error, ties as ours", float(measure.distance.largest)),
        figure(f"{name}: perplexity", theirs),
        figure(f"{name}: served perplexity", served),
        figure(f"{name}: difference of perplexities", difference, limit=f"<= {wanted.perplexity}"),
    ]
    if difference > float(wanted.perplexity):
        failures.append(f"{name}: perplexity {theirs:.6f}, served is {served:.6f}")
    return failures


def _perplexities(measure: AgreementMeasure) -> tuple[float, float]:
    """Served and the other engine's."""
    tokens = sum(document.tokens for document in measure.documents)
    sums = (total(float(getattr(one, which)) for one in measure.documents) for which in ("served", "theirs"))
    served, theirs = (growth(value / tokens) for value in sums)
    return served, theirs
