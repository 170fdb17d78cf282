"""What each changed layer costs in likelihood and divergence, from the losses of a reference forward."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite

from pydantic import JsonValue

from runner.model.base import decimal_text
from runner.model.evidence import Evidence
from runner.model.plan import PlannedWindow
from runner.model.sample import Sample, SensitivityMeasure, SensitivityRow
from runner.stats import total
from serve.instruments.answers import fact, material, missing
from serve.instruments.base import sample

NAME = "sensitivity"
VERSION = 1

TOGETHER = "together"


def reduce(evidence: Sequence[Evidence], window: PlannedWindow) -> Sample:
    """Facts ``loss`` (document to nats) and ``layers`` (name to ``loss`` and ``kl``). Raises EvidenceError without."""
    own = evidence[0]
    documents = material(own, "texts")
    standing, layers = fact(own, "loss"), fact(own, "layers")
    if not isinstance(standing, dict) or not isinstance(layers, dict):
        raise missing(own, "facts.loss and facts.layers")
    faults: list[str] = []
    before = _numbers("standing pack", standing, documents, faults)
    rows = []
    for name, found in layers.items():
        loss, kl = (found.get(part) if isinstance(found, dict) else None for part in ("loss", "kl"))
        after = _numbers(f"{name}: loss", loss, documents, faults)
        divergences = _numbers(f"{name}: KL", kl, documents, faults)
        shared = [document for document in documents if document in before and document in after]
        rows.append(
            SensitivityRow(
                layer=name,
                deltas={document: decimal_text(after[document] - before[document]) for document in shared},
                mean_kl=decimal_text(total(divergences.values()) / max(1, len(divergences))),
            )
        )
    if TOGETHER not in layers:
        faults.append("all layers together were never measured")
    tokens = sum(len(text["tokens"]) - 1 for text in documents.values())
    return sample(evidence, SensitivityMeasure(tokens=tokens, rows=tuple(rows)), faults)


def _numbers(what: str, told: JsonValue, documents: Mapping[str, object], faults: list[str]) -> dict[str, float]:
    """The document's numbers; a fault for each that is missing or no finite number."""
    found = {}
    for document in documents:
        text = told.get(document) if isinstance(told, dict) else None
        try:
            value = float(str(text))
        except ValueError:
            value = float("nan")
        if isfinite(value):
            found[document] = value
        else:
            faults.append(f"{what}: {document} has no finite number")
    return found
