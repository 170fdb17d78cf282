"""What drivers and instruments read from the real engine, against what does not come from it or comes another way.

Documents, requests and readings are those of a run; only the plan is left out.
"""

from __future__ import annotations

from math import exp

import pytest
from pydantic import JsonValue

from runner.draw import Draw
from runner.model.evidence import Evidence
from runner.model.plan import PlannedWindow
from runner.model.sample import Measure, PerplexityMeasure, ShiftMeasure, SpeedMeasure
from runner.paths import source_root
from runner.steps.boots import POOLS
from runner.steps.seats import load_manifest
from serve.adapters.booted import BootedEngine
from serve.adapters.side import run_job
from serve.client.context import WindowContext
from serve.client.registry import driver
from serve.instruments.registry import instrument, parse
from tests.serve.engine_boot import PACK

pytestmark = pytest.mark.engine

PERPLEXITY = 1e-3
"""Largest relative difference of two perplexities of the same text."""
CLOCKS = 0.02
"""Relative difference within which two clocks agree on a rate."""
DOCUMENTS: dict[str, JsonValue] = {"documents": 6, "tokens": 128, "rows": 6, "material": "cross-check"}


BLOCKS = 48
"""How many blocks are tried for one in which the two clocks agree."""


def measured(
    engine: BootedEngine, name: str, variant: str, arguments: dict[str, JsonValue]
) -> tuple[Evidence, Measure]:
    """One window as a run measures it; the reading must be without faults."""
    window = PlannedWindow(
        id=name,
        boot="test",
        instrument=f"{name}@1",
        arm="none",
        control=True,
        expects=(),
        arguments=arguments,
        seconds=1,
    )
    engine.switch(variant)
    context = WindowContext(
        window=window,
        boot=engine,
        manifest=load_manifest("cpu-mini"),
        draw=Draw(bytes(32), "cross-checks"),
        pools=source_root() / POOLS,
        variant=variant,
        pack=source_root() / load_manifest("cpu-mini").pack,
    )
    evidence = driver(window.instrument)(context)
    sample = instrument(*parse(window.instrument)).reduce([evidence], window)
    assert sample.faults == ()
    return evidence, sample.measure


def perplexity(measure: Measure) -> float:
    """Of all documents together."""
    assert isinstance(measure, PerplexityMeasure)
    assert len(measure.documents) == DOCUMENTS["documents"]
    return exp(sum(float(one.nll) for one in measure.documents) / sum(one.tokens for one in measure.documents))


@pytest.fixture(scope="module")
def prefill(engine: BootedEngine) -> tuple[Evidence, float]:
    """Whole documents in one step each, by the incumbent."""
    evidence, measure = measured(engine, "ppl-prefill", "incumbent", DOCUMENTS)
    return evidence, perplexity(measure)


def test_prefill_perplexity_is_that_of_transformers(prefill: tuple[Evidence, float]) -> None:
    evidence, found = prefill
    texts = evidence.material["texts"]
    assert isinstance(texts, dict)
    documents = {name: text["tokens"] for name, text in texts.items() if isinstance(text, dict)}
    answer = run_job("serve.witness.reference", {"pack": str(PACK), "documents": documents}, timeout=600)
    logprobs = [value for values in answer["base"].values() for value in values]
    assert found == pytest.approx(exp(-sum(logprobs) / len(logprobs)), rel=PERPLEXITY)
    assert found < 10, "a trained model, not a random one"


@pytest.mark.parametrize("variant", ["incumbent", "lna2"])
def test_decode_perplexity_is_that_of_prefill(
    engine: BootedEngine, prefill: tuple[Evidence, float], variant: str
) -> None:
    evidence, measure = measured(engine, "ppl-decode", variant, DOCUMENTS)
    assert evidence.material == prefill[0].material
    assert perplexity(measure) == pytest.approx(prefill[1], rel=PERPLEXITY)


def test_a_wrong_kernel_shows_in_decode_perplexity(engine: BootedEngine, prefill: tuple[Evidence, float]) -> None:
    _, measure = measured(engine, "ppl-decode", "half-k", DOCUMENTS)
    assert perplexity(measure) != pytest.approx(prefill[1], rel=PERPLEXITY)


@pytest.mark.parametrize("variant", ["incumbent", "lna2"])
def test_the_clients_rate_is_that_of_the_engines_metrics(engine: BootedEngine, variant: str) -> None:
    """Whatever keeps the client from the processor drives the two clocks apart in that block.

    A rate that is wrong by more than blocks differ never fits.

    So one block in which nothing came between is enough, and on a machine that is busy it only takes longer to come.
    """
    ratios: list[float] = []
    for block in range(BLOCKS):
        _, measure = measured(engine, "speed", variant, {"tokens": 128, "material": f"block {block}"})
        assert isinstance(measure, SpeedMeasure)
        decoded = measure.server_tokens - len(measure.texts)
        ratios.append(float(measure.decode_rate) * measure.server_decode_ns / (decoded * 1e9))
        if ratios[-1] == pytest.approx(1, rel=CLOCKS):
            return
    pytest.fail(f"the client's rate over that of the engine's metrics: {ratios}")


def test_transformers_predict_what_a_perturbation_changes(engine: BootedEngine) -> None:
    _, measure = measured(engine, "perturbation", "lna2", {})
    assert isinstance(measure, ShiftMeasure)
    (rank,) = measure.ranks
    assert float(rank.observed) > 0.01
    assert rank.error is not None
    assert float(rank.error) < 0.05
