"""What a real engine with a draft layer answered (vLLM 0.28.0 on a processor, the trained pack), read again."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.model.engine_measure import AcceptanceMeasure
from runner.model.evidence import Evidence
from runner.model.plan import PlannedWindow
from serve.instruments import acceptance

FOLDER = Path(__file__).resolve().parent / "recorded"


@pytest.mark.parametrize(("language", "drafts", "accepted"), [("en", 48, 47), ("ja", 52, 44), ("code", 50, 45)])
def test_acceptance_by_language(language: str, drafts: int, accepted: int) -> None:
    evidence = Evidence.model_validate_json((FOLDER / f"acceptance-{language}.json").read_bytes())
    window = PlannedWindow(
        id=evidence.window,
        boot="speculating",
        instrument="acceptance@1",
        arm="candidate",
        control=False,
        expects=(),
        arguments={"language": language, "speculates": True},
        seconds=10,
    )
    sample = acceptance.reduce([evidence], window)
    assert sample.faults == ()
    assert isinstance(sample.measure, AcceptanceMeasure)
    assert (sample.measure.tokens, sample.measure.drafts, sample.measure.accepted_tokens) == (96, drafts, accepted)
    assert {row.layer for row in sample.engagement[0].witness if row.launches} >= {"model.layers.4.mlp.experts"}
