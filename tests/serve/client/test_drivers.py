"""Every driver against a real HTTP engine (the fake seat's), and every instrument on what it wrote down."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runner.draw import Draw
from runner.errors import InputError
from runner.model.evidence import Evidence
from runner.model.plan import PlannedBoot, PlannedWindow
from runner.model.sample import (
    DivergenceMeasure,
    EngagedMeasure,
    FinishMeasure,
    KvMeasure,
    NeedleMeasure,
    PerplexityMeasure,
    RefusalMeasure,
    ResolvedMeasure,
    Sample,
    ShiftMeasure,
    SpeedMeasure,
)
from runner.paths import source_root
from runner.steps.seats import load_manifest
from serve.adapters.booted import BootedEngine
from serve.adapters.fake import FakeSeat
from serve.client.context import WindowContext
from serve.client.refusal import refused
from serve.client.registry import driver
from serve.instruments.base import evidence_bytes, evidence_digest
from serve.instruments.registry import instrument
from serve.seat import BootRequest

POOLS = source_root() / "recipe/mini/text"
LIBRARIES = {"lna2": "lna2", "lna2-watermark": "lna2-watermark", "half-k": "half-k", "zero": "knock-out-zero"}


@pytest.fixture(scope="module")
def boot(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BootedEngine]:
    folder = tmp_path_factory.mktemp("boot")
    planned = PlannedBoot.model_validate(
        {"id": "shared-a", "role": "shared", "libraries": list(LIBRARIES), "strict": 0, "seconds": 1}
    )
    request = BootRequest(
        planned=planned,
        manifest=load_manifest("fake-tp2"),
        pack=folder,
        libraries={name: Path(library) for name, library in LIBRARIES.items()},
        variant="incumbent",
        allowed_declines=("rows-above-limit",),
        folder=folder,
    )
    running = FakeSeat().boot(request)
    yield running
    running.stop()


def context_of(boot: BootedEngine, name: str, variant: str = "lna2", /, **arguments: Any) -> WindowContext:
    """A window of instrument ``name`` with ``variant`` switched on."""
    boot.switch(variant)
    window = PlannedWindow(
        id=f"{name}-{variant}",
        boot="shared-a",
        instrument=f"{name}@1",
        arm="candidate",
        control=False,
        expects=(),
        arguments={"material": name, **arguments},
        seconds=1,
    )
    return WindowContext(
        window=window,
        boot=boot,
        manifest=load_manifest("fake-tp2"),
        draw=Draw(bytes(32), "0" * 64),
        pools=POOLS,
        variant=variant,
        pack=Path("toy"),
    )


def measured(boot: BootedEngine, name: str, variant: str = "lna2", /, **arguments: Any) -> tuple[Evidence, Sample]:
    """The evidence of a window, through its file's bytes, and the sample."""
    context = context_of(boot, name, variant, **arguments)
    evidence = Evidence.model_validate_json(evidence_bytes(driver(context.window.instrument)(context)))
    return evidence, instrument(name, 1).reduce([evidence], context.window)


def launches(sample: Sample, variant: str) -> dict[int, dict[int, int]]:
    """Rows → launches by rank, of one layer."""
    return {
        one.rank: dict(row.rows)
        for one in sample.engagement
        for row in one.witness
        if row.variant == variant and row.layer == "model.layers.1.mlp.experts"
    }


def test_speed_has_its_tokens_times_and_rows(boot: BootedEngine) -> None:
    evidence, sample = measured(boot, "speed", streams=1, tokens=24, prompt_tokens=48)
    assert isinstance(sample.measure, SpeedMeasure)
    assert sample.faults == ()
    assert sample.measure.server_tokens == 72
    assert {text.language for text in sample.measure.texts} == {"en", "ja", "code"}
    assert all(text.completion_tokens == 24 and text.finish_reason == "length" for text in sample.measure.texts)
    assert 1.1 * float(sample.measure.decode_rate) > float(sample.measure.aggregate_rate) > 0
    assert set(launches(sample, "lna2")[1]) == {1, 48}
    assert len(evidence.machine) >= 2
    assert sample.evidence == (evidence_digest(evidence),)


def test_streams_run_at_once_on_prompts_of_their_own(boot: BootedEngine) -> None:
    _, sample = measured(boot, "speed", streams=3, tokens=24, prompt_tokens=20, languages=["ja"])
    assert isinstance(sample.measure, SpeedMeasure)
    assert sample.faults == ()
    assert len({text.prompt_digest for text in sample.measure.texts}) == 3
    assert launches(sample, "lna2")[0].get(3, 0) > 5


def test_the_same_seed_draws_the_same_material_and_another_label_another(boot: BootedEngine) -> None:
    first, _ = measured(boot, "ppl-decode", documents=3, tokens=8, rows=3)
    again, _ = measured(boot, "ppl-decode", "incumbent", documents=3, tokens=8, rows=3)
    other, _ = measured(boot, "ppl-decode", documents=3, tokens=8, rows=3, material="another")
    assert first.material == again.material != other.material


def test_decode_and_prefill_agree_on_the_same_documents(boot: BootedEngine) -> None:
    arguments = {"documents": 6, "tokens": 70, "material": "both"}
    _, decode = measured(boot, "ppl-decode", rows=3, **arguments)
    _, prefill = measured(boot, "ppl-prefill", **arguments)
    assert isinstance(decode.measure, PerplexityMeasure)
    assert isinstance(prefill.measure, PerplexityMeasure)
    assert decode.faults == prefill.faults == ()
    nlls = [[float(one.nll) for one in measure.documents] for measure in (decode.measure, prefill.measure)]
    assert nlls[0] == pytest.approx(nlls[1], rel=1e-4)
    assert max(launches(decode, "lna2")[0]) == 3, "decode steps hold one row a document"
    assert set(launches(prefill, "incumbent")[0]) == {65}, "prefill holds a whole document"
    assert {row.reason for one in prefill.engagement for row in one.declines} == {"rows-above-limit"}


def test_divergence_sees_a_broken_kernel_and_not_a_good_one(boot: BootedEngine) -> None:
    arguments: dict[str, Any] = {"documents": 3, "tokens": 12, "rows": 3, "top": 64, "drawn": 1}
    reference, own = measured(boot, "kld", "incumbent", **arguments)
    found = {}
    for variant in ("lna2", "half-k"):
        context = context_of(boot, "kld", variant, reference_window=reference.window, **arguments)
        evidence = driver("kld@1")(context)
        sample = instrument("kld", 1).reduce([evidence, reference], context.window)
        assert sample.faults == ()
        assert isinstance(sample.measure, DivergenceMeasure)
        found[variant] = max(float(document.mean_kl) for document in sample.measure.documents)
    assert isinstance(own.measure, DivergenceMeasure)
    assert {document.mean_kl for document in own.measure.documents} == {"0"}
    assert found["lna2"] < 1e-9
    assert found["half-k"] > 1e-2


def test_needles_are_hidden_at_their_depths_and_found(boot: BootedEngine) -> None:
    evidence, sample = measured(boot, "needle", prompt_tokens=700, depths=[10, 90])
    assert isinstance(sample.measure, NeedleMeasure)
    assert sample.faults == ()
    assert [trial.prompt_tokens for trial in sample.measure.trials] == [700] * 6
    # The toy distribution copies what followed the same eight bytes: it finds the English form only.
    assert {trial.id for trial in sample.measure.trials if trial.found} == {"en-10", "en-90"}
    prompts = [exchange.request["prompt"] for exchange in evidence.exchanges]
    assert len({str(prompt) for prompt in prompts}) == 6


@pytest.mark.parametrize(
    ("name", "variant", "changed"),
    [("watermark", "lna2", "lna2-watermark"), ("knock-out-zero", "incumbent", "zero"), ("perturbation", "lna2", "")],
)
def test_a_deliberate_change_moves_every_rank(boot: BootedEngine, name: str, variant: str, changed: str) -> None:
    evidence, sample = measured(boot, name, variant, variant=changed, tokens=24)
    assert isinstance(sample.measure, ShiftMeasure)
    assert sample.faults == ()
    assert sample.measure.floor == "0"
    assert [rank.rank for rank in sample.measure.ranks] == [0, 1]
    assert all(float(rank.observed) > 1e-3 for rank in sample.measure.ranks)
    assert {call.method for call in evidence.calls} <= {"switch", "perturb", "unperturb"}
    if changed:
        assert launches(sample, changed).keys() == {0, 1}


def test_the_window_is_filled_and_has_an_end(boot: BootedEngine) -> None:
    _, sample = measured(boot, "kv-window", tokens=8)
    assert isinstance(sample.measure, KvMeasure)
    assert sample.faults == ()
    assert (sample.measure.filled_tokens, sample.measure.beyond_limit_status) == (2048, 400)


def test_texts_finish_by_themselves_or_at_their_budget(boot: BootedEngine) -> None:
    _, sample = measured(boot, "finish", texts=2, tokens=80, prompt_tokens=40)
    assert isinstance(sample.measure, FinishMeasure)
    assert sample.faults == ()
    assert {text.finish_reason for text in sample.measure.texts} <= {"stop", "length"}


def test_engaged_runs_both_phases(boot: BootedEngine) -> None:
    _, sample = measured(boot, "engaged", tokens=4)
    assert sample.measure == EngagedMeasure(tokens=4)
    assert set(launches(sample, "lna2")[0]) == {1}
    assert set(launches(sample, "incumbent")[0]) == {65}


def test_the_configuration_is_read_from_every_rank(boot: BootedEngine) -> None:
    evidence, sample = measured(boot, "resolved")
    assert isinstance(sample.measure, ResolvedMeasure)
    assert {field.name: field.requested == field.resolved for field in sample.measure.fields}["max_model_len"]
    assert len(evidence.calls[0].results) == 2


def test_a_boot_that_serves_was_not_refused(boot: BootedEngine) -> None:
    _, sample = measured(boot, "knock-out-decline", tokens=2)
    assert sample.measure == RefusalMeasure(refused=False, reason="the boot was running", ranks=())


def test_a_refused_boot_is_evidence(boot: BootedEngine) -> None:
    context = context_of(boot, "knock-out-decline")
    words = "carve strict 2: variant lna2 declined on rank 1: other"
    record = boot.record.model_copy(update={"ended": "refused", "ended_reason": words})
    evidence = refused(context.window, record, "lna2")
    measure = instrument("knock-out-decline", 1).reduce([evidence], context.window).measure
    assert measure == RefusalMeasure(refused=True, reason=words, ranks=(1,))


def test_an_engine_error_is_a_fault_and_no_answer(boot: BootedEngine) -> None:
    _, sample = measured(boot, "finish", texts=1, tokens=4000)
    assert any("maximum context length" in fault for fault in sample.faults)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"documents": "many"}, "argument documents"),
        ({"languages": []}, "argument languages"),
        ({"languages": ["fr"]}, "fr.jsonl"),
        ({"tokens": 2_000_000}, "too small"),
    ],
)
def test_arguments_that_cannot_be_used_are_named(boot: BootedEngine, arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        measured(boot, "ppl-decode", **arguments)


def test_an_unknown_instrument_has_no_driver() -> None:
    with pytest.raises(InputError, match="no client driver"):
        driver("divination@1")
