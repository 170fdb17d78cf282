"""Real engine with the pack's own draft layer: acceptance by language, and the text that it would write without."""

from __future__ import annotations

from typing import Any

import pytest

from runner.draw import Draw
from runner.gates.base import GateInput
from runner.gates.registry import gate
from runner.model.boot import BootRecord
from runner.model.engine_measure import AcceptanceMeasure, GreedyBandMeasure
from runner.model.evidence import Evidence
from runner.model.plan import Expectation, PlannedBoot, PlannedWindow
from runner.model.sample import Sample
from runner.model.verdict import Status
from runner.paths import source_root
from runner.steps.seats import load_manifest
from serve.adapters.booted import BootedEngine
from serve.client.context import WindowContext
from serve.client.registry import driver
from serve.instruments.base import evidence_bytes
from serve.instruments.registry import instrument, parse
from tests.serve.engine_boot import PACK, boot, stop_clean

pytestmark = pytest.mark.engine

MTP = {"speculative_config": {"method": "mtp", "num_speculative_tokens": 1}}
BOOTS = tuple(
    PlannedBoot.model_validate(
        {"id": name, "role": name, "libraries": ["lna2"], "strict": 1, "seconds": 20, "arguments": arguments}
    )
    for name, arguments in (("plain", {}), ("speculating", MTP))
)


def window(name: str, at: str, instrument_name: str, **arguments: Any) -> PlannedWindow:
    """A window of the candidate in one of the boots."""
    return PlannedWindow(
        id=name,
        boot=at,
        instrument=f"{instrument_name}@1",
        arm="candidate",
        control=False,
        expects=(
            Expectation(variant="lna2", rows_min=1, rows_max=32),
            Expectation(variant="incumbent", rows_min=33, rows_max=65, decline="rows-above-limit"),
        ),
        arguments={"prompt_tokens": 24, "texts": 3, "tokens": 32, **arguments},
        seconds=10,
    )


LANGUAGES = ("en", "ja", "code")
BAND: dict[str, Any] = {"material": "band", "languages": list(LANGUAGES), "rows": 1}
AGAINST = BAND | {"reference_window": "reference"}
WINDOWS = (
    window("reference", "plain", "greedy-band", **BAND),
    window("again", "plain", "greedy-band", **AGAINST | {"rows": 3, "again": True}),
    window("speculating", "speculating", "greedy-band", **AGAINST),
    *(
        window(f"acceptance-{language}", "speculating", "acceptance", language=language, speculates=True)
        for language in LANGUAGES
    ),
)


def collected(engine: BootedEngine, planned: PlannedWindow) -> Evidence:
    """The window's evidence through its file's bytes."""
    context = WindowContext(
        window=planned,
        boot=engine,
        manifest=load_manifest("cpu-mini"),
        draw=Draw(bytes(32), "0" * 64),
        pools=source_root() / "recipe/mini/text",
        variant="lna2",
        pack=PACK,
    )
    return Evidence.model_validate_json(evidence_bytes(driver(planned.instrument)(context)))


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Sample], tuple[BootRecord, ...]]:
    """Every window's sample and the boots' records."""
    evidence: dict[str, Evidence] = {}
    records = []
    for planned in BOOTS:
        folder = tmp_path_factory.mktemp(planned.id)
        engine = boot(folder, arguments=dict(planned.arguments))
        try:
            engine.record = engine.record.model_copy(update={"planned": planned.id})
            engine.switch("lna2")
            evidence |= {one.id: collected(engine, one) for one in WINDOWS if one.boot == planned.id}
        finally:
            stop_clean(engine)
        records.append(engine.record)
    samples = {}
    for one in WINDOWS:
        read = [evidence[one.id]]
        read += [evidence["reference"]] if "reference_window" in one.arguments else []
        samples[one.id] = instrument(*parse(one.instrument)).reduce(read, one)
    return samples, tuple(records)


def judged(name: str, measured: tuple[dict[str, Sample], tuple[BootRecord, ...]], **parameters: Any) -> Any:
    """The gate over its windows."""
    windows = tuple(one for one in WINDOWS if one.instrument == f"{name}@1")
    samples = tuple(measured[0][one.id] for one in windows)
    return gate(name, 1).judge(
        GateInput(parameters=parameters, planned_boots=BOOTS, windows=windows, samples=samples, boots=measured[1])
    )


def test_drafts_are_accepted_in_every_language(measured: Any) -> None:
    lengths = {}
    for language in LANGUAGES:
        sample = measured[0][f"acceptance-{language}"]
        assert sample.faults == ()
        assert isinstance(sample.measure, AcceptanceMeasure)
        assert sample.measure.tokens == 96
        assert len(sample.measure.accepted_by_position) == 1
        assert 0 < sample.measure.accepted_tokens < sample.measure.drafts < 96
        lengths[language] = 1 + sample.measure.accepted_tokens / sample.measure.drafts
    assert all(1 < length < 2 for length in lengths.values()), lengths


def test_text_with_speculation_is_the_text_without(measured: Any) -> None:
    sample = measured[0]["speculating"]
    assert isinstance(sample.measure, GreedyBandMeasure)
    assert sample.faults == ()
    verdict = judged("greedy-band", measured, tokens=64)
    assert verdict.status is Status.PASS, verdict.reasons


def test_what_was_asked_is_what_the_engine_says(measured: Any) -> None:
    asked = {record.planned: record.requested.get("speculative_config") for record in measured[1]}
    told = {record.planned: record.resolved["speculative_config"] for record in measured[1]}
    assert told == asked == {"plain": None, "speculating": MTP["speculative_config"]}
