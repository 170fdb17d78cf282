"""KL divergence and top-1 agreement per position, against the reference window's logprobs of the same forced tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp, log

from runner.errors import EvidenceError
from runner.model.base import decimal_text
from runner.model.evidence import POSITIONS, Evidence, Exchange
from runner.model.plan import PlannedWindow
from runner.model.sample import DivergenceDocument, DivergenceMeasure, DrawnPosition, Sample
from runner.stats import total
from serve.instruments.answers import material
from serve.instruments.base import inputs, sample
from serve.instruments.likelihood import by_id, forced_logprobs, state_faults, top_logprobs

NAME = "kld"
VERSION = 1

_TINY = 1e-12
"""Least mass of a remainder: rounding can leave nothing outside the top tokens."""

Top = Mapping[int, float]


def reduce(evidence: Sequence[Evidence], window: PlannedWindow) -> Sample:
    """Divergence of the window from its reference, in nats; a window without a reference is its own.

    Over each position the reference's top tokens are compared one by one and everything else as one remainder, so the
    figure is a lower bound of the full divergence (data-processing inequality). Raises EvidenceError where the
    reference's evidence was not given.
    """
    wanted = inputs(window)
    if tuple(one.window for one in evidence) != wanted:
        raise EvidenceError(
            "the divergence needs its reference",
            where=f"window {window.id}",
            expected=", ".join(wanted),
            found=", ".join(one.window for one in evidence),
        )
    own, reference = evidence[0], evidence[-1]
    faults = state_faults(own)
    if own.material != reference.material:
        faults.append(f"other material than window {reference.window}")
    mine, theirs = by_id(own), by_id(reference)
    documents = []
    drawn = material(own, POSITIONS)
    for identifier, text in material(own, "texts").items():
        found = _document(identifier, text["tokens"], drawn[identifier], mine.get(identifier), theirs.get(identifier))
        if isinstance(found, str):
            faults.append(f"{identifier}: {found}")
        else:
            documents.append(found)
    if not documents:
        faults.append("no document was compared")
    return sample(evidence, DivergenceMeasure(reference_window=reference.window, documents=tuple(documents)), faults)


def read_drawn(evidence: Sequence[Evidence], identifier: str, positions: Sequence[int]) -> tuple[DrawnPosition, ...]:
    """One document at some positions, read from the full evidence or from its extract alike.

    Raises LookupError or ValueError where the evidence has no top logprobs there.
    """
    candidate, reference = (top_logprobs(by_id(one)[identifier]) for one in (evidence[0], evidence[-1]))
    return _drawn(reference, candidate, positions)


def _drawn(reference: Sequence[Top], candidate: Sequence[Top], positions: Sequence[int]) -> tuple[DrawnPosition, ...]:
    return tuple(
        DrawnPosition(
            position=at,
            kl=decimal_text(divergence(reference[at], candidate[at])),
            top1_agrees=_best(reference[at]) == _best(candidate[at]),
        )
        for at in positions
    )


def _document(
    identifier: str, tokens: Sequence[int], positions: Sequence[int], mine: Exchange | None, theirs: Exchange | None
) -> DivergenceDocument | str:
    """One document's divergence, or what is wrong with it."""
    if mine is None or theirs is None:
        return "never asked"
    for exchange in (mine, theirs):
        _, fault = forced_logprobs(exchange, tokens)
        if fault:
            return fault
    candidate, reference = top_logprobs(mine), top_logprobs(theirs)
    if not len(candidate) == len(reference) == len(tokens) - 1:
        return "top logprobs are missing"
    if not all(candidate) or not all(reference):
        return "top logprobs are not named by token id"
    divergences = [divergence(*pair) for pair in zip(reference, candidate, strict=True)]
    agreed = sum(_best(one) == _best(other) for one, other in zip(reference, candidate, strict=True))
    return DivergenceDocument(
        id=identifier,
        positions=len(divergences),
        mean_kl=decimal_text(total(divergences) / len(divergences)),
        max_kl=decimal_text(max(divergences)),
        top1_agree=agreed,
        drawn=_drawn(reference, candidate, positions),
    )


def divergence(reference: Top, candidate: Top) -> float:
    """KL(reference ‖ candidate) over the tokens both answers name and one remainder of all others."""
    shared = reference.keys() & candidate.keys()
    whole = total(exp(reference[token]) * (reference[token] - candidate[token]) for token in shared)
    rest_reference = max(1 - total(exp(reference[token]) for token in shared), _TINY)
    rest_candidate = max(1 - total(exp(candidate[token]) for token in shared), _TINY)
    return max(whole + rest_reference * log(rest_reference / rest_candidate), 0.0)


def _best(top: Top) -> int:
    return max(top, key=lambda token: (top[token], -token))
