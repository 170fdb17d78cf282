"""Drivers of what an engine answers, against the fake seat's engine; and the image cards."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runner.draw import Draw
from runner.errors import InputError
from runner.material import card_answer, score_answer
from runner.model.answer_measure import AgreementMeasure, RowSpread, SanityMeasure, ScoreMeasure, TtftMeasure
from runner.model.engine_measure import AcceptanceMeasure, GreedyBandMeasure
from runner.model.evidence import Evidence
from runner.model.plan import PlannedBoot, PlannedWindow
from runner.model.sample import Sample
from runner.paths import source_root
from runner.steps.seats import load_manifest
from serve.adapters.booted import BootedEngine
from serve.adapters.fake import FakeSeat
from serve.client import agreement
from serve.client.card import MARGIN, SCALE, dots, png
from serve.client.context import WindowContext
from serve.client.registry import driver
from serve.instruments.base import evidence_bytes
from serve.instruments.extract import extract
from serve.instruments.registry import instrument
from serve.seat import BootRequest

SEED = Draw(bytes(32), "0" * 64)


@pytest.fixture(scope="module")
def boot(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BootedEngine]:
    folder = tmp_path_factory.mktemp("boot")
    planned = PlannedBoot(id="shared-a", role="shared", libraries=("lna2", "half-k"), strict=0, seconds=1)
    running = FakeSeat().boot(
        BootRequest(
            planned=planned,
            manifest=load_manifest("fake"),
            pack=folder,
            libraries={"lna2": Path("lna2"), "half-k": Path("half-k")},
            variant="incumbent",
            allowed_declines=("rows-above-limit",),
            folder=folder,
        )
    )
    yield running
    running.stop()


def measured(
    boot: BootedEngine, name: str, variant: str = "lna2", /, *reference: Evidence, **arguments: Any
) -> tuple[Evidence, Sample]:
    """Evidence through its file's bytes, and the sample; the extract reads the same."""
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
    context = WindowContext(
        window=window,
        boot=boot,
        manifest=load_manifest("fake"),
        draw=SEED,
        pools=source_root() / "recipe/mini/text",
        variant=variant,
        pack=Path("toy"),
    )
    evidence = Evidence.model_validate_json(evidence_bytes(driver(window.instrument)(context)))
    known = instrument(name, 1)
    sample = known.reduce([evidence, *reference], window)
    again = known.reduce([extract(evidence), *map(extract, reference)], window)
    assert (again.measure, again.faults) == (sample.measure, sample.faults)
    return evidence, sample


def test_first_tokens_of_prompts_of_their_own(boot: BootedEngine) -> None:
    _, sample = measured(boot, "ttft", texts=3, prompt_tokens=200)
    assert isinstance(sample.measure, TtftMeasure)
    assert sample.faults == ()
    assert [text.prompt_tokens for text in sample.measure.texts] == [200] * 3
    assert all(text.ttft_ns > 0 for text in sample.measure.texts)


def test_another_engines_record_is_asked_token_by_token(boot: BootedEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Our own forward needs torch and a real pack (``tests/recipe/test_agreement.py``); what it says is given here."""
    document = {"tokens": [5, 6, 7], "theirs": [-2.0, -1.0], "ours": [-2.0, -1.0]}
    document |= {"distances": [0.001, 0.002, 0.001], "float16": [0.001] * 3}
    told = {"exllamav3": "1.6.5", "torch": "2.11.0", "device": "a card", "another_batch": "0.0004", "record": "a" * 64}
    monkeypatch.setattr(agreement, "_measured", lambda pack, file: told | {"documents": [document] * 2})
    evidence, sample = measured(boot, "agreement", record="README.md", digest="a" * 64)
    assert [exchange.request["prompt"] for exchange in evidence.exchanges] == [[5, 6, 7]] * 2
    assert isinstance(sample.measure, AgreementMeasure)
    assert sample.faults == () and sample.measure.record == "a" * 64
    assert [(one.tokens, one.theirs) for one in sample.measure.documents] == [(2, "3")] * 2
    assert sample.measure.distance == RowSpread(median="0.001", ninth_decile="0.002", largest="0.002")
    with pytest.raises(InputError, match="record of the other engine is missing"):
        measured(boot, "agreement", record="no/such.npz", digest="a" * 64)


def test_text_in_three_languages(boot: BootedEngine) -> None:
    _, sample = measured(boot, "sanity", texts=3, tokens=32, prompt_tokens=40)
    assert isinstance(sample.measure, SanityMeasure)
    assert sample.faults == ()
    assert [text.language for text in sample.measure.texts] == ["en", "ja", "code"]
    assert all(0 <= float(text.script) <= 1 and 0 < float(text.distinct) <= 1 for text in sample.measure.texts)


def test_the_own_continuation_is_mostly_the_likeliest(boot: BootedEngine) -> None:
    evidence, sample = measured(boot, "score", items=12, prompt_tokens=40, tokens=12, languages=["en"])
    assert isinstance(sample.measure, ScoreMeasure)
    assert sample.faults == ()
    assert [item.choices for item in sample.measure.items] == [4] * 12
    items: Any = evidence.material["items"]
    assert {item["answer"] for item in items.values()} > {0}, "the place is drawn"
    assert all(item["answer"] == score_answer(SEED, "score", name, 4) for name, item in items.items())


def test_greedy_text_parts_where_a_kernel_is_broken_and_not_where_it_rounds(boot: BootedEngine) -> None:
    arguments: dict[str, Any] = {"texts": 3, "tokens": 32, "prompt_tokens": 40}
    reference, _ = measured(boot, "greedy-band", "incumbent", **arguments)
    arguments["reference_window"] = "greedy-band-incumbent"
    found = {}
    for variant in ("lna2", "half-k"):
        _, sample = measured(boot, "greedy-band", variant, reference, **arguments)
        assert isinstance(sample.measure, GreedyBandMeasure)
        assert sample.faults == ()
        found[variant] = [text.common < text.tokens for text in sample.measure.texts]
    assert not any(found["lna2"])
    assert any(found["half-k"])


def test_an_engine_without_speculation_accepts_nothing(boot: BootedEngine) -> None:
    _, sample = measured(boot, "acceptance", language="ja", speculates=False, texts=2, tokens=16, prompt_tokens=24)
    assert isinstance(sample.measure, AcceptanceMeasure)
    assert sample.faults == ()
    assert (sample.measure.tokens, sample.measure.drafts, sample.measure.accepted_by_position) == (32, 0, ())
    _, wrong = measured(boot, "acceptance", language="ja", speculates=True, texts=1, tokens=8, prompt_tokens=24)
    assert wrong.faults == ("the engine serves no counter of speculation",)


def test_a_text_engine_cannot_look_at_a_card(boot: BootedEngine) -> None:
    evidence, sample = measured(boot, "vision", cards=2)
    assert [one.split(":")[0] for one in sample.faults] == ["c1", "c2"]
    cards: Any = evidence.material["cards"]
    assert all(card["answer"] == card_answer(SEED, "vision", name, 3) for name, card in cards.items())


def test_a_card_shows_its_digits() -> None:
    image = png("407")
    assert image.startswith(b"\x89PNG\r\n\x1a\n")
    assert image.endswith(b"IEND" + zlib.crc32(b"IEND").to_bytes(4, "big"))
    start = image.index(b"IDAT") + 4
    pixels = zlib.decompress(image[start : image.index(b"IEND") - 8])
    width = (3 * 5 + 4 * MARGIN) * SCALE
    assert len(pixels) == (7 + 2 * MARGIN) * SCALE * (width + 1)
    assert pixels.count(0) - (7 + 2 * MARGIN) * SCALE == sum(map(sum, dots("407"))) * SCALE * SCALE
    assert png("407") != png("408")
