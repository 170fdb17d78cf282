"""The positions that stand for a whole divergence: drawn by the seed, read again from the kept evidence."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from runner import archive
from runner.digest import canonical_json, sha256_bytes
from runner.draw import Draw
from runner.errors import TrustError
from runner.model.evidence import EVERY_POSITION, Evidence
from runner.model.plan import PlannedWindow
from runner.model.report import EvidencePart, Measured
from runner.model.sample import DivergenceDocument, DivergenceMeasure, Sample
from runner.replay import replay
from runner.verify_samples import check_drawn
from serve.instruments import speed
from serve.instruments.extract import extract
from serve.instruments.kld import reduce

CASE = Path(__file__).parents[1] / "instruments" / "kld" / "compared_pass" / "input.json"
DRAW = Draw(bytes(32), "0" * 64)


def case() -> tuple[PlannedWindow, list[Evidence], Sample]:
    """A committed case: window, full evidence of both arms, and the sample."""
    data = json.loads(CASE.read_bytes())
    window = PlannedWindow.model_validate_json(json.dumps(data["window"]))
    evidence = [Evidence.model_validate_json(json.dumps(one)) for one in data["evidence"]]
    return window, evidence, reduce(evidence, window)


def edited(sample: Sample, **changes: Any) -> Sample:
    """The sample with other drawn positions in its first document."""
    assert isinstance(sample.measure, DivergenceMeasure)
    first, *rest = sample.measure.documents
    drawn = tuple(each.model_copy(update=changes) for each in first.drawn)
    documents = (first.model_copy(update={"drawn": drawn}), *rest)
    return sample.model_copy(update={"measure": sample.measure.model_copy(update={"documents": documents})})


def drawn_by_seed(sample: Sample, window: PlannedWindow) -> Sample:
    """The sample with the positions that the seed draws."""
    assert isinstance(sample.measure, DivergenceMeasure)
    documents = []
    for document in sample.measure.documents:
        (position,) = DRAW.positions(f"kld/{document.id}", document.positions, 1)
        drawn = (document.drawn[0].model_copy(update={"position": position}),)
        documents.append(document.model_copy(update={"drawn": drawn}))
    return sample.model_copy(update={"measure": sample.measure.model_copy(update={"documents": tuple(documents)})})


def test_positions_follow_from_the_seed() -> None:
    window, _, sample = case()
    window = window.model_copy(update={"arguments": {**window.arguments, "material": "kld", "drawn": 1}})
    honest = drawn_by_seed(sample, window)
    check_drawn(honest, window, DRAW, "here")
    assert isinstance(honest.measure, DivergenceMeasure)
    other = 1 - honest.measure.documents[0].drawn[0].position
    with pytest.raises(TrustError, match="the seed did not draw"):
        check_drawn(edited(honest, position=other), window, DRAW, "here")
    two = window.model_copy(update={"arguments": {**window.arguments, "drawn": 2}})
    with pytest.raises(TrustError, match="the seed did not draw"):
        check_drawn(honest, two, DRAW, "here")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"max_kl": "0.000000000001"}, "a largest KL of at least"),
        ({"mean_kl": "0.000000000001"}, "a mean KL of at least"),
        ({"top1_agree": 99}, "positions that agree"),
    ],
)
def test_a_document_cannot_be_better_than_its_drawn_positions(changes: dict[str, Any], words: str) -> None:
    """A whole that its own parts contradict was edited, whoever signed it."""
    window, _, sample = case()
    window = window.model_copy(update={"arguments": {**window.arguments, "material": "kld", "drawn": 1}})
    bad = edited(drawn_by_seed(sample, window), kl="0.8", top1_agrees=False)
    measure = bad.measure
    assert isinstance(measure, DivergenceMeasure)
    first, *rest = measure.documents
    honest = first.model_copy(update={"mean_kl": "0.6", "max_kl": "0.8", "top1_agree": 0})

    def with_first(document: DivergenceDocument) -> Sample:
        return bad.model_copy(update={"measure": measure.model_copy(update={"documents": (document, *rest)})})

    check_drawn(with_first(honest), window, DRAW, "here")
    with pytest.raises(TrustError, match="say otherwise") as caught:
        check_drawn(with_first(honest.model_copy(update=changes)), window, DRAW, "here")
    assert words in caught.value.expected


def kept(evidence: list[Evidence]) -> tuple[EvidencePart, dict[str, bytes]]:
    """An index of full digests, and the extracts."""
    full = {f"{one.window}.json": canonical_json(one.model_dump(mode="json")) for one in evidence}
    small = {f"{one.window}.json": canonical_json(extract(one).model_dump(mode="json")) for one in evidence}
    files = {name: sha256_bytes(data) for name, data in full.items()}
    return EvidencePart(archive=None, files=files, kept=files), small


def measured(window: PlannedWindow, sample: Sample) -> Measured:
    """As much of it as reading again needs."""
    return cast(Measured, SimpleNamespace(plan=SimpleNamespace(windows=(window,)), samples=(sample,)))


def test_drawn_positions_are_read_again_from_the_extract() -> None:
    window, evidence, sample = case()
    index, small = kept(evidence)
    found = replay(measured(window, sample), index, small, "here")
    assert (found.whole, found.drawn, found.missing) == ([], ["kld-candidate"], [])
    assert replay(measured(window, sample), index, {}, "here").missing == ["kld-candidate"]
    with pytest.raises(TrustError, match="not what their instrument reads"):
        replay(measured(window, edited(sample, kl="0.5")), index, small, "here")
    with pytest.raises(TrustError, match="lacks a drawn position"):
        replay(measured(window, edited(sample, position=1)), index, small, "here")
    with pytest.raises(TrustError, match="lacks a drawn position"):
        replay(measured(window, edited(sample, position=7)), index, small, "here")


def test_a_divergence_is_read_in_whole_from_the_full_evidence() -> None:
    """What the drawn positions allow, a mean a little lower, is found where the full evidence lies."""
    window, evidence, sample = case()
    index, small = kept(evidence)
    full = {f"{one.window}.json": canonical_json(one.model_dump(mode="json")) for one in evidence}
    found = replay(measured(window, sample), index, full, "here", full=full)
    assert (found.whole, found.drawn, found.missing) == (["kld-candidate"], [], [])
    assert isinstance(sample.measure, DivergenceMeasure)
    first, *rest = sample.measure.documents
    lower = first.model_copy(update={"mean_kl": str(float(first.mean_kl) * 0.9)})
    kinder = sample.model_copy(update={"measure": sample.measure.model_copy(update={"documents": (lower, *rest)})})
    assert replay(measured(window, kinder), index, small, "here").drawn == ["kld-candidate"]
    with pytest.raises(TrustError, match="not what its instrument reads"):
        replay(measured(window, kinder), index, full, "here", full=full)


def every_position(
    evidence: list[Evidence], window: PlannedWindow
) -> tuple[PlannedWindow, EvidencePart, dict[str, bytes]]:
    """The window as it is planned now, an index of full digests, and the extracts that a run keeps."""
    window = window.model_copy(update={"arguments": {**window.arguments, EVERY_POSITION: True}})
    full = {f"evidence/{one.window}.json": canonical_json(one.model_dump(mode="json")) for one in evidence}
    files = {name: sha256_bytes(data) for name, data in full.items()}
    return window, EvidencePart(archive=None, files=files, kept=files), archive.extracts(full, [window])


def first_document(sample: Sample, **changes: Any) -> Sample:
    """The sample with another first document."""
    assert isinstance(sample.measure, DivergenceMeasure)
    first, *rest = sample.measure.documents
    documents = (first.model_copy(update=changes), *rest)
    return sample.model_copy(update={"measure": sample.measure.model_copy(update={"documents": documents})})


def scaled(text: str, factor: float) -> str:
    return format(float(text) * factor, ".12g")


def test_a_mean_follows_from_the_divergence_at_every_position() -> None:
    """The same edit gets through where a plan of before keeps the drawn positions only."""
    plain, evidence, sample = case()
    window, index, small = every_position(evidence, plain)
    assert replay(measured(window, sample), index, small, "here").drawn == ["kld-candidate"]
    assert isinstance(sample.measure, DivergenceMeasure)
    first = sample.measure.documents[0]
    for changes, words in (
        ({"mean_kl": scaled(first.mean_kl, 0.998)}, "the mean KL"),
        ({"mean_kl": scaled(first.mean_kl, 1.002)}, "the mean KL"),
        ({"max_kl": scaled(first.max_kl, 0.99)}, "the largest KL"),
        ({"top1_agree": first.top1_agree + 1}, "the count of positions that agree"),
        ({"positions": first.positions + 1}, "the number of positions"),
    ):
        kinder = first_document(sample, **changes)
        with pytest.raises(TrustError, match=f"{words} is not that of its positions"):
            replay(measured(window, kinder), index, small, "here")
    kinder = first_document(sample, mean_kl=scaled(first.mean_kl, 0.998))
    assert replay(measured(plain, kinder), index, small, "here").drawn == ["kld-candidate"]


def test_only_a_plan_that_asks_for_it_keeps_every_position() -> None:
    """Extracts of plans from before have the bytes that they had."""
    plain, evidence, sample = case()
    window, index, small = every_position(evidence, plain)
    full = {f"evidence/{one.window}.json": canonical_json(one.model_dump(mode="json")) for one in evidence}
    before = archive.extracts(full, [plain])
    assert before == {
        f"evidence/{one.window}.json": canonical_json(extract(one).model_dump(mode="json")) for one in evidence
    }
    with pytest.raises(TrustError, match="lacks the divergence at every position"):
        replay(measured(window, sample), index, before, "here")
    assert [name for name in small if small[name] != before[name]] == ["evidence/kld-candidate.json"]


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda kl: [], "the number of positions"),
        (lambda kl: [kl[0], "-1"], "the least KL"),
        (lambda kl: ["1e308"] * len(kl), "the mean KL"),
        (lambda kl: ["0"] * len(kl), "the mean KL"),
    ],
)
def test_kept_positions_that_say_otherwise_are_refused(edit: Callable[[list[str]], list[str]], words: str) -> None:
    plain, evidence, sample = case()
    window, index, small = every_position(evidence, plain)
    name = "evidence/kld-candidate.json"
    extracted = json.loads(small[name])
    divergences = next(iter(extracted["divergences"].values()))
    divergences["kl"] = edit(divergences["kl"])
    with pytest.raises(TrustError, match=f"{words} is not that of its positions"):
        replay(measured(window, sample), index, {**small, name: canonical_json(extracted)}, "here")


def test_a_drawn_position_is_among_all_of_them() -> None:
    """The figures that were kept cannot leave out what the kept logprobs say."""
    plain, evidence, sample = case()
    window, index, small = every_position(evidence, plain)
    name = "evidence/kld-candidate.json"
    extracted = json.loads(small[name])
    assert isinstance(sample.measure, DivergenceMeasure)
    first = sample.measure.documents[0]
    divergences = extracted["divergences"][first.id]
    divergences["kl"].reverse()
    assert divergences["kl"] != divergences["kl"][::-1]
    with pytest.raises(TrustError, match=r"position \d+ is not that of its positions"):
        replay(measured(window, sample), index, {**small, name: canonical_json(extracted)}, "here")


def more_launches(sample: Sample) -> Sample:
    first, *rest = sample.engagement
    row, *others = first.witness
    told = row.model_copy(update={"launches": row.launches + 1})
    return sample.model_copy(update={"engagement": (first.model_copy(update={"witness": (told, *others)}), *rest)})


def fewer_documents(sample: Sample) -> Sample:
    assert isinstance(sample.measure, DivergenceMeasure)
    fewer = sample.measure.model_copy(update={"documents": sample.measure.documents[1:]})
    return sample.model_copy(update={"measure": fewer})


def longer_document(sample: Sample) -> Sample:
    assert isinstance(sample.measure, DivergenceMeasure)
    first, *rest = sample.measure.documents
    longer = first.model_copy(update={"positions": first.positions + 1})
    return sample.model_copy(update={"measure": sample.measure.model_copy(update={"documents": (longer, *rest)})})


def other_reference(sample: Sample) -> Sample:
    measure = sample.measure.model_copy(update={"reference_window": "kld-floor"})
    return sample.model_copy(update={"measure": measure})


@pytest.mark.parametrize(
    ("edit", "field"),
    [
        (more_launches, "engagement"),
        (lambda sample: sample.model_copy(update={"engagement": sample.engagement[:-1]}), "engagement"),
        (lambda sample: sample.model_copy(update={"variant": "another"}), "variant"),
        (lambda sample: sample.model_copy(update={"boot": "another-1"}), "boot"),
        (lambda sample: sample.model_copy(update={"disturbed": ("steal",)}), "disturbed"),
        (lambda sample: sample.model_copy(update={"faults": ("made up",)}), "faults"),
        (other_reference, "measure"),
        (fewer_documents, "faults"),
        (longer_document, "measure"),
    ],
)
def test_what_an_extract_holds_of_a_divergence_is_compared(edit: Callable[[Sample], Sample], field: str) -> None:
    window, evidence, sample = case()
    index, small = kept(evidence)
    assert replay(measured(window, sample), index, small, "here").drawn == ["kld-candidate"]
    with pytest.raises(TrustError, match="not what its instrument reads") as refused:
        replay(measured(window, edit(sample)), index, small, "here")
    assert field in refused.value.found


def test_launches_that_the_kept_counters_deny_are_refused() -> None:
    """The reading claims that the kernel ran; counters that stood still say that nothing did."""
    window, evidence, sample = case()
    still = [evidence[0].model_copy(update={"counters_after": evidence[0].counters_before}), *evidence[1:]]
    index, small = kept(still)
    claimed = sample.model_copy(update={"evidence": tuple(index.files.values())})
    with pytest.raises(TrustError, match="not what its instrument reads") as refused:
        replay(measured(window, claimed), index, small, "here")
    assert "engagement" in refused.value.found
    honest = reduce(still, window)
    assert replay(measured(window, honest), index, small, "here").drawn == ["kld-candidate"]


def test_a_document_that_could_not_be_compared_is_read_again_with_its_reason() -> None:
    window, (own, reference), _ = case()
    first, *others = own.exchanges
    evidence = [own.model_copy(update={"exchanges": tuple(others)}), reference]
    sample = reduce(evidence, window)
    assert f"{first.id}: never asked" in sample.faults
    index, small = kept(evidence)
    assert replay(measured(window, sample), index, small, "here").drawn == ["kld-candidate"]
    with pytest.raises(TrustError, match="not what its instrument reads"):
        replay(measured(window, sample.model_copy(update={"faults": ()})), index, small, "here")


@pytest.mark.parametrize("named", [True, False])
def test_a_disturbed_block_that_was_measured_again_keeps_its_sample(named: bool) -> None:
    data = json.loads((CASE.parents[2] / "speed" / "FL-68-steal_fail" / "input.json").read_bytes())
    window = PlannedWindow.model_validate_json(json.dumps(data["window"]))
    (evidence,) = (Evidence.model_validate_json(json.dumps(one)) for one in data["evidence"])
    sample = speed.reduce([evidence], window)
    assert sample.disturbed
    name = f"evidence/disturbed/{window.id}.1.json"
    files = {name: canonical_json(evidence.model_dump(mode="json"))}
    index = EvidencePart(archive=None, files={name: sha256_bytes(files[name])}, kept={})
    samples = (sample,) if named else ()
    record = cast(Measured, SimpleNamespace(plan=SimpleNamespace(windows=(window,)), samples=samples))
    if named:
        assert replay(record, index, files, "here").whole == [window.id]
    else:
        with pytest.raises(TrustError, match="a disturbed sample was left out"):
            replay(record, index, files, "here")
