"""A divergence read again from the committed extracts.

They keep the top logprobs of the positions drawn, and, where the plan asks for it, the divergence at every position:
from the first these can be read, from the second a document's mean, maximum and count of agreeing positions follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

from runner.errors import EvidenceError
from runner.model.evidence import POSITIONS, Divergences, Evidence
from runner.model.plan import PlannedWindow
from runner.model.sample import DivergenceDocument, DivergenceMeasure, Sample
from runner.stats import total
from serve.instruments import kld
from serve.instruments.answers import material
from serve.instruments.registry import read

_NOT_KEPT = "token_logprobs are missing or of another length"
"""What the instrument says of a document that was answered as forced, where it reads the extract."""
_NOTHING = "no document was compared"


def reduce_extracts(evidence: Sequence[Evidence], window: PlannedWindow, said: Sample) -> Sample:
    """As :func:`serve.instruments.kld.reduce`, with what no extract holds taken over from ``said``: the whole figures
    of a document, and why one that was answered was not compared.

    Everything else is read: engagement, machine state, faults, which documents there are, how long each is and its
    drawn positions. Raises EvidenceError as the instrument does, LookupError or ValueError where a drawn position is
    missing.
    """
    read = kld.reduce(evidence, window)
    positions, texts = material(evidence[0], POSITIONS), material(evidence[0], "texts")
    whole = {each.id: each for each in said.measure.documents} if isinstance(said.measure, DivergenceMeasure) else {}
    documents: list[DivergenceDocument] = []
    faults: list[str] = []
    for fault in read.faults:
        identifier, _, reason = fault.partition(": ")
        if identifier not in texts or reason != _NOT_KEPT:
            faults += [] if fault == _NOTHING and documents else [fault]
        elif identifier in whole:
            drawn = kld.read_drawn(evidence, identifier, positions[identifier])
            length = len(texts[identifier]["tokens"]) - 1
            documents.append(whole[identifier].model_copy(update={"positions": length, "drawn": drawn}))
        else:
            reasons = [each for each in said.faults if each.startswith(f"{identifier}: ")]
            faults += reasons[:1] or [f"{identifier}: left out"]
    measure = DivergenceMeasure(reference_window=evidence[-1].window, documents=tuple(documents))
    return read.model_copy(update={"measure": measure, "faults": tuple(faults)})


_DIGITS = 4
"""Significant ones of a kept divergence: 2,280 positions of three windows are 13 kB of an archive."""
_ROUNDED = 5.1e-4
"""Largest relative error of so few digits, and so of a mean of them, and a little for the text of the mean itself."""


def every_position(evidence: Sequence[Evidence], window: PlannedWindow) -> dict[str, Divergences]:
    """Each compared document at all its positions, from the full evidence; none where it says nothing to compare."""
    try:
        measure = read(evidence, window).measure
    except EvidenceError:
        return {}
    assert isinstance(measure, DivergenceMeasure), "the only measure of this instrument"
    found = {}
    for document in measure.documents:
        positions = kld.read_drawn(evidence, document.id, range(document.positions))
        disagree = tuple(each.position for each in positions if not each.top1_agrees)
        found[document.id] = Divergences(kl=tuple(_rounded(each.kl) for each in positions), disagree=disagree)
    return found


def at_odds(document: DivergenceDocument, kept: Divergences) -> tuple[str, str, str] | None:
    """What of a document is not what its positions give, what they give, and what it says; None where all of it is."""
    divergences, count = [float(each) for each in kept.kl], len(kept.kl)
    if document.positions != count or not count:
        return "the number of positions", str(count), str(document.positions)
    if min(divergences) < 0:
        return "the least KL", "0 or more", min(kept.kl, key=float)
    mean = total(divergences) / count
    if not isfinite(mean) or abs(float(document.mean_kl) - mean) > _ROUNDED * mean:
        return "the mean KL", f"{mean:.12g}", document.mean_kl
    if float(_rounded(document.max_kl)) != max(divergences):
        return "the largest KL", max(kept.kl, key=float), document.max_kl
    if document.top1_agree != count - len(set(kept.disagree)):
        return "the count of positions that agree", str(count - len(set(kept.disagree))), str(document.top1_agree)
    for each in document.drawn:
        said_there = (float(_rounded(each.kl)), each.top1_agrees)
        there = (divergences[each.position], each.position not in kept.disagree)
        if said_there != there:
            return f"position {each.position}", str(there), str(said_there)
    return None


def _rounded(kl: str) -> str:
    return format(float(kl), f".{_DIGITS}g").replace("e+", "e")
