"""Cases of ``agreement`` from version 2 on: ties of the router told apart."""

from __future__ import annotations

from typing import Any

from runner.gates.base import GateInput
from runner.model.answer_measure import AgreementDocument, AgreementMeasure, RoutedAgreement, RowSpread
from tests.gates.build import DIGEST, INCUMBENT, SHARED, Case, both, given, sample, window
from tests.gates.cases_answers import other


def agreement() -> list[Case]:
    def record(number: int = 1, *, theirs: str = "150.05", documents: int = 8, digest: str = DIGEST, **far: Any) -> Any:
        of = window(f"agreement-{number}", "shared-a", "agreement", "incumbent", arguments={"digest": DIGEST})
        told = {"tokens": 100, "served": far.get("served", "150"), "theirs": theirs, "ours": "150.01"}
        spread = {"median": "0.0005", "ninth_decile": "0.001", "largest": "0.0015"}
        rows = {name: far.get(name, value) for name, value in (spread | {"largest": "0.003"}).items()}
        routed = RoutedAgreement.model_validate(
            {"distance": rows, "float16": spread, "tie": "0.002", "choices": 1000}
            | {name: far.get(name, 20) for name in ("ties", "others")}
        )
        measure = AgreementMeasure(
            record=digest,
            library=f"exllamav3 1.{number}",
            device="a card",
            distance=RowSpread(median="0.001", ninth_decile="0.002", largest="0.09"),
            float16=RowSpread.model_validate(spread),
            another_batch="0.09",
            documents=tuple(AgreementDocument.model_validate({"id": f"d{at}"} | told) for at in range(documents)),
            routed=far.get("routed", routed),
        )
        return of, sample(of, measure, INCUMBENT, engagement=both(INCUMBENT))

    def one(*records: Any, **parameters: Any) -> GateInput:
        return given(parameters, SHARED, list(records))

    passed, largest = "every row of every record", "exllamav3 1.1: largest relative error"
    return [
        (
            "at-the-limits_pass",
            one(record(median="0.001", ninth_decile="0.002")),
            "PASS",
            passed,
            {largest: "<= 0.003000", f"{largest}, ties as ours": "", "exllamav3 1.1: ties": "<= 50"},
        ),
        ("two-versions_pass", one(record(), record(2)), "PASS", passed),
        ("no-layer-of-experts_pass", one(record(ties=0, others=0)), "PASS", passed),
        ("a-row-beyond-noise_fail", one(record(largest="0.0031")), "FAIL", f"{largest} of logits 0.003100"),
        ("every-row-too-far_fail", one(record(median="0.0011")), "FAIL", "median relative error of logits 0.001100"),
        ("one-row-of-five-too-far_fail", one(record(ninth_decile="0.0021")), "FAIL", "ninth decile relative error"),
        ("three-times-noise-allowed_pass", one(record(largest="0.0045"), times_noise="3"), "PASS", passed),
        ("one-version-too-far_fail", one(record(), record(2, median="0.1")), "FAIL", "exllamav3 1.2: median"),
        ("another-perplexity_fail", one(record(theirs="150.2")), "FAIL", "perplexity 4.490"),
        ("a-lower-perplexity_fail", one(record(theirs="149.8")), "FAIL", "perplexity 4.472"),
        ("too-many-ties_invalid", one(record(ties=51)), "INVALID", "51 of 1000 choices of experts are ties"),
        ("fewer-ties-allowed_invalid", one(record(), ties="0.01"), "INVALID", "20 of 1000 choices"),
        ("ties-not-told-apart_invalid", one(record(routed=None)), "INVALID", "were not told apart"),
        ("another-record_invalid", one(record(digest="b" * 64)), "INVALID", "sealed was aaaa"),
        ("few-documents_invalid", one(record(documents=7)), "INVALID", "7 documents, at least 8"),
        ("no-document_invalid", one(record(documents=0), documents=0), "INVALID", "0 documents, at least 0"),
        (
            "perplexities-beyond-any-number_invalid",
            one(record(theirs="1000000", served="2000000")),
            "INVALID",
            "a perplexity beyond any number",
        ),
        ("not-measured_invalid", given({}, SHARED, [(record()[0], None)]), "NOT_RUN", "no sample"),
        ("sample-of-another-kind_invalid", one(other(record())), "INVALID", "no reading for"),
        ("unknown-parameter_invalid", one(record(), largest="1"), "INVALID", "largest"),
    ]
