"""What ``ppl-prefill`` and ``ppl-decode`` share: paired non-inferiority with the document as unit."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Literal

from runner.gates.base import GateInput, GateParameters, Limit
from runner.gates.common import Decision, Reading, by_limits, figure, invalid, of_kind
from runner.model.sample import DocumentMeasure, PerplexityMeasure
from runner.model.verdict import Figure, Status
from runner.stats import DOCUMENTS, growth, total, worst_end


class PerplexityParameters(GateParameters):
    """How much worse a document may become."""

    margin: Limit
    """Largest increase of negative log-likelihood, in nats a token: the worst end of the interval must lie inside."""
    coverage: Limit = "0.95"
    """Least coverage of the interval of the median document."""
    perplexity: Limit | None = None
    """Largest perplexity over all documents (a line fixed before the run)."""
    classes: Literal["together", "each"] = "together"
    """``each``: what all tokens of a language lose together must lie inside the margin too. The median document alone
    leaves a minority of documents, and with enough documents a whole language, free to be as bad as they like."""


def noninferior(wanted: PerplexityParameters, readings: tuple[Reading, ...], given: GateInput) -> Decision:
    """PASS with the worst end inside the margin, FAIL with the median outside, UNRESOLVED between."""
    incumbent, candidate = measure_of(readings, "incumbent"), measure_of(readings, "candidate")
    if candidate is None:
        return _absolute(wanted, incumbent)
    if incumbent is None:
        return invalid("no window of the incumbent to compare with")
    pairs, fault = _paired(incumbent.documents, candidate.documents)
    if fault:
        return invalid(fault)
    deltas = [(float(mine.nll) - float(theirs.nll)) / mine.tokens for theirs, mine in pairs]
    interval, middle = worst_end(deltas, float(wanted.coverage)), median(deltas)
    figures: tuple[Figure, ...] = (
        figure("documents", len(deltas)),
        figure("median increase", middle, unit="nats a token"),
        figure("worst end", interval.high, unit="nats a token", limit=f"<= {wanted.margin}"),
        figure("coverage", interval.coverage, limit=f">= {wanted.coverage}"),
        figure("perplexity incumbent", perplexity(incumbent.documents)),
        _limit_figure(wanted, candidate.documents),
    )
    failures = _line(wanted, candidate.documents)
    if wanted.classes == "each":
        rises = _by_language(pairs)
        figures += tuple(
            figure(f"{name} increase", rise, unit="nats a token", limit=f"<= {wanted.margin}") for name, rise in rises
        )
        failures += [
            f"{name}: worse by {rise:.4g} nats a token, the margin is {wanted.margin}"
            for name, rise in rises
            if rise > float(wanted.margin)
        ]
    if middle > float(wanted.margin):
        failures.append(f"half of the documents are worse by more than {middle:.4g} nats a token")
    if not failures and interval.high > float(wanted.margin):
        reason = f"the interval reaches {interval.high:.4g} nats a token, the margin is {wanted.margin}"
        return Decision(Status.UNRESOLVED, (reason,), figures)
    told = "language" if wanted.classes == "each" else "document class"
    return by_limits(failures, figures, f"no {told} is worse by more than the margin")


def _by_language(pairs: Sequence[tuple[DocumentMeasure, DocumentMeasure]]) -> list[tuple[str, float]]:
    """Each language with the increase of its negative log-likelihood, in nats a token over all its tokens."""
    found = []
    for language in sorted({mine.language for _, mine in pairs}):
        own = [(theirs, mine) for theirs, mine in pairs if mine.language == language]
        increase = total(float(mine.nll) - float(theirs.nll) for theirs, mine in own)
        found.append((language, increase / sum(mine.tokens for _, mine in own)))
    return found


def measure_of(readings: tuple[Reading, ...], arm: str) -> PerplexityMeasure | None:
    """The measure of one arm."""
    return next((one for reading, one in of_kind(readings, PerplexityMeasure) if reading.window.arm == arm), None)


def _absolute(wanted: PerplexityParameters, incumbent: PerplexityMeasure | None) -> Decision:
    """A standing configuration alone is judged by the perplexity line, and by nothing else."""
    if incumbent is None or wanted.perplexity is None:
        return invalid("there is no candidate to compare and no perplexity line to hold")
    if not any(one.tokens for one in incumbent.documents):
        return invalid("no token was scored")
    return by_limits(
        _line(wanted, incumbent.documents), (_limit_figure(wanted, incumbent.documents),), "the perplexity line holds"
    )


def _line(wanted: PerplexityParameters, documents: Sequence[DocumentMeasure]) -> list[str]:
    found = perplexity(documents)
    if wanted.perplexity is None or found <= float(wanted.perplexity):
        return []
    return [f"perplexity is {found:.4f}, the line {wanted.perplexity}"]


def _limit_figure(wanted: PerplexityParameters, documents: Sequence[DocumentMeasure]) -> Figure:
    return figure("perplexity", perplexity(documents), limit=f"<= {wanted.perplexity}" if wanted.perplexity else "")


def perplexity(documents: Sequence[DocumentMeasure]) -> float:
    """Over all documents together. Raises ZeroDivisionError where no token was scored."""
    return growth(total(float(one.nll) for one in documents) / sum(one.tokens for one in documents))


def _paired(
    incumbent: Sequence[DocumentMeasure], candidate: Sequence[DocumentMeasure]
) -> tuple[list[tuple[DocumentMeasure, DocumentMeasure]], str]:
    """Documents of both arms side by side, or why they cannot be paired."""
    theirs, mine = {one.id: one for one in incumbent}, {one.id: one for one in candidate}
    if theirs.keys() != mine.keys():
        return [], f"the arms scored other documents: {sorted(theirs.keys() ^ mine.keys())[:5]}"
    if len(mine) < DOCUMENTS:
        return [], f"{len(mine)} documents, at least {DOCUMENTS} are needed"
    odd = [name for name in mine if mine[name].tokens != theirs[name].tokens or mine[name].tokens < 1]
    if odd:
        return [], f"the arms scored other tokens of {odd[:5]}"
    return [(theirs[name], mine[name]) for name in sorted(mine)], ""
