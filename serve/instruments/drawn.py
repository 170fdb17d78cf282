"""A divergence read again from the committed extracts, which keep of each document only the positions drawn."""

from __future__ import annotations

from collections.abc import Sequence

from runner.model.evidence import POSITIONS, Evidence
from runner.model.plan import PlannedWindow
from runner.model.sample import DivergenceDocument, DivergenceMeasure, Sample
from serve.instruments import kld
from serve.instruments.answers import material

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
