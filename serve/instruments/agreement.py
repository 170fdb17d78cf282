"""Another engine's logits beside our own forward and beside what the served engine answers for the same tokens."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Any

from runner.model.answer_measure import AgreementDocument, AgreementMeasure, RoutedAgreement, RowSpread
from runner.model.base import decimal_text
from runner.model.evidence import Evidence
from runner.model.plan import PlannedWindow
from runner.model.sample import Sample
from runner.stats import total
from serve.instruments.answers import fact, missing
from serve.instruments.base import sample
from serve.instruments.likelihood import by_id, prompt_logprobs, state_faults

NAME = "agreement"
VERSION = 1


def reduce(evidence: Sequence[Evidence], window: PlannedWindow) -> Sample:
    """Fact ``agreement``: what ``recipe.agreement`` measured; the exchanges hold ``prompt_logprobs`` of its tokens."""
    own = evidence[0]
    told: Any = fact(own, "agreement")
    try:
        documents, faults = _documents(own, told)
        measure = AgreementMeasure(
            record=told["record"],
            library=f"exllamav3 {told['exllamav3']}",
            device=told["device"],
            distance=_spread(told, "distances"),
            float16=_spread(told, "float16"),
            another_batch=told["another_batch"],
            documents=tuple(documents),
            routed=_routed(told) if "tie" in told else None,
        )
    except (AttributeError, KeyError, TypeError, ValueError):
        raise missing(own, "facts.agreement in its form") from None
    return sample(evidence, measure, [*state_faults(own), *faults])


def _documents(own: Evidence, told: Any) -> tuple[list[AgreementDocument], list[str]]:
    exchanges, found, faults = by_id(own), [], []
    for number, document in enumerate(told["documents"], 1):
        name, tokens = f"d{number}", document["tokens"]
        values, fault = prompt_logprobs(exchanges[name], tokens) if name in exchanges else ((), "never asked")
        whole = ("distances", "float16", *(("routed", "routed_float16") if "tie" in told else ()))
        lengths = {len(tokens) - 1: ("theirs", "ours"), len(tokens): whole}
        if any(len(document[part]) != length for length, parts in lengths.items() for part in parts):
            fault = fault or "the record has another length than its tokens"
        if fault:
            faults.append(f"{name}: {fault}")
            continue
        found.append(
            AgreementDocument(
                id=name,
                tokens=len(values),
                served=decimal_text(-total(values)),
                theirs=decimal_text(-total(document["theirs"])),
                ours=decimal_text(-total(document["ours"])),
            )
        )
    return found, faults or ([] if found else ["no document was read"])


def _routed(told: Any) -> RoutedAgreement:
    return RoutedAgreement(
        distance=_spread(told, "routed"),
        float16=_spread(told, "routed_float16"),
        tie=told["tie"],
        choices=int(told["choices"]),
        ties=sum(document["ties"] for document in told["documents"]),
        others=sum(len(document["others"]) for document in told["documents"]),
    )


def _spread(told: Any, part: str) -> RowSpread:
    """Nearest ranks over the rows of all documents."""
    rows = sorted(float(value) for document in told["documents"] for value in document[part]) or [0.0]
    at = {"median": ceil(len(rows) / 2), "ninth_decile": ceil(len(rows) * 9 / 10), "largest": len(rows)}
    return RowSpread.model_validate({name: decimal_text(rows[rank - 1]) for name, rank in at.items()})
