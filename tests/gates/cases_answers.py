"""Cases of the gates about first tokens, sane text, scores and images."""

from __future__ import annotations

from typing import Any

from runner.gates.base import GateInput
from runner.model.answer_measure import (
    AgreementDocument,
    AgreementMeasure,
    FirstToken,
    RowSpread,
    SanityMeasure,
    SanityText,
    ScoreItem,
    ScoreMeasure,
    TtftMeasure,
    VisionCard,
    VisionMeasure,
)
from runner.model.sample import FinishMeasure
from tests.gates.build import DIGEST, FORCING, INCUMBENT, SHARED, Case, both, given, sample, window


def other(reading: Any) -> Any:
    """The same reading with a measure of another kind."""
    return reading[0], reading[1].model_copy(update={"measure": FinishMeasure(texts=())})


def ttft() -> list[Case]:
    def arm(name: str, times: list[int], boot: str = "shared-a", tokens: int = 2048) -> Any:
        of = window(f"ttft-1-{name}", boot, "ttft", name, arguments={"round": 1})
        texts = tuple(
            FirstToken(id=f"d{number}", language="en", prompt_tokens=tokens, ttft_ns=time)
            for number, time in enumerate(times)
        )
        variant = INCUMBENT if name == "incumbent" else "lna2"
        return of, sample(of, TtftMeasure(texts=texts), variant, engagement=both(variant))

    boots = SHARED | {"shared-b": "shared"}
    before = [100_000_000] * 8

    def one(
        after: list[int], parameters: dict[str, Any] | None = None, first: list[int] = before, **changes: Any
    ) -> GateInput:
        readings = [arm("incumbent", first), arm("candidate", after, **changes)]
        return given(parameters or {}, boots, readings)

    alone = given({}, boots, [arm("incumbent", before)])
    candidate_alone = given({}, boots, [arm("candidate", before)])
    mixed = [100_000_000] * 6 + [120_000_000] * 2
    told = {"worst end": "<= 0.05", "coverage": ">= 0.95"}
    return [
        ("no-later_pass", one(before), "PASS", "no later", told),
        ("earlier_pass", one([72_000_000] * 8), "PASS", "no later"),
        ("six-prompts_pass", one([100_000_000] * 6, {"coverage": "0.96875"}, [100_000_000] * 6), "PASS", "no later"),
        ("SF-04-declines-and-waits_fail", one([140_000_000] * 8), "FAIL", "wait 1.400 times as long"),
        ("half-of-them-wait_fail", one([100_000_000] * 3 + [130_000_000] * 5), "FAIL", "wait 1.300 times"),
        ("above-a-tight-margin_fail", one([101_000_000] * 8, {"margin": "0.005"}), "FAIL", "wait 1.010 times"),
        ("a-few-wait_unresolved", one(mixed), "UNRESOLVED", "the interval reaches 0.1823"),
        ("H7-another-boot_invalid", one(before, boot="shared-b"), "INVALID", "first tokens of 2 boots"),
        ("other-prompts_invalid", one(before, tokens=1024), "INVALID", "not asked the same prompts"),
        ("fewer-prompts_invalid", one(before[:5]), "INVALID", "not asked the same prompts"),
        ("five-prompts_invalid", one(before[:5], first=before[:5]), "INVALID", "5 prompts cannot cover"),
        ("incumbent-alone_invalid", alone, "INVALID", "not asked the same prompts"),
        ("candidate-alone_invalid", candidate_alone, "INVALID", "not asked the same prompts"),
        ("no-first-token_invalid", one([*before[:7], 0]), "INVALID", "without a first token"),
        (
            "sample-of-another-kind_invalid",
            given({}, boots, [other(arm("incumbent", before))]),
            "INVALID",
            "no reading",
        ),
        ("not-measured_invalid", given({}, boots, [(arm("incumbent", before)[0], None)]), "NOT_RUN", "no sample"),
        ("unknown-parameter_invalid", one(before, {"ratio": 1}), "INVALID", "ratio"),
    ]


def sanity() -> list[Case]:
    def arm(name: str, **changed: tuple[str, str]) -> Any:
        of = window(f"sanity-{name}", "shared-a", "sanity", name)
        shares = {"en": ("1", "0.8"), "ja": ("0.9", "0.8"), "code": ("1", "0.6"), **changed}
        texts = tuple(
            SanityText(id=f"d00{number}-{language}", language=language, tokens=64, script=script, distinct=distinct)
            for number, (language, (script, distinct)) in enumerate(shares.items())
            if script
        )
        variant = INCUMBENT if name == "incumbent" else "lna2"
        return of, sample(of, SanityMeasure(texts=texts), variant, engagement=both(variant))

    def one(parameters: dict[str, Any] | None = None, **changed: tuple[str, str]) -> GateInput:
        return given(parameters or {}, SHARED, [arm("incumbent"), arm("candidate", **changed)])

    alone = [arm("incumbent")]
    lost = {"lost": "0.25"}
    told = {"ja script, candidate": ">= 0.5"}
    return [
        ("as-before_pass", one({"script": "0.5"}), "PASS", "looks as before", told),
        ("a-little-less_pass", one(lost, en=("0.75", "0.55")), "PASS", "looks as before"),
        ("at-the-least_pass", one({"distinct": "0.6", "script": "0.9"}), "PASS", "looks as before"),
        ("FL-15-runs-in-a-circle_fail", one(code=("1", "0.1")), "FAIL", "code: distinct 0.100, the incumbent's 0.600"),
        ("another-script_fail", one(ja=("0.1", "0.8")), "FAIL", "ja: script 0.100, the incumbent's 0.900"),
        ("below-the-least_fail", one({"distinct": "0.7"}), "FAIL", "code: distinct 0.600, at least 0.7"),
        (
            "standing-configuration_pass",
            given({}, SHARED, alone),
            "PASS",
            "as before",
            {"ja script, incumbent": ">= 0"},
        ),
        ("standing-below-the-least_fail", given({"script": "0.95"}, SHARED, alone), "FAIL", "ja: script 0.900"),
        ("no-japanese_invalid", one(ja=("", "")), "INVALID", "ja: no text of the candidate"),
        (
            "incumbent-wrote-no-code_invalid",
            given({}, SHARED, [arm("incumbent", code=("", "")), arm("candidate")]),
            "INVALID",
            "code: no text of the incumbent",
        ),
        ("sample-of-another-kind_invalid", given({}, SHARED, [other(alone[0])]), "INVALID", "no reading for"),
        ("not-measured_invalid", given({}, SHARED, [(alone[0][0], None)]), "NOT_RUN", "no sample"),
        ("unknown-parameter_invalid", one({"words": 1}), "INVALID", "words"),
    ]


def score() -> list[Case]:
    def arm(name: str, right: str, choices: int = 4) -> Any:
        of = window(f"score-{name}", "forcing", "score", name)
        items = tuple(
            ScoreItem(id=f"i{at:02d}", language="en", choices=choices, right=mark == "+", margin="1")
            for at, mark in enumerate(right)
        )
        variant = INCUMBENT if name == "incumbent" else "lna2"
        return of, sample(of, ScoreMeasure(items=items), variant, engagement=both(variant))

    def one(
        after: str, parameters: dict[str, Any] | None = None, before: str = "+" * 15 + "-" * 5, **changes: Any
    ) -> GateInput:
        return given(parameters or {}, FORCING, [arm("incumbent", before), arm("candidate", after, **changes)])

    alone = [arm("incumbent", "++-+")]
    return _trials(one, alone, "item", "asked", arm)


def agreement() -> list[Case]:
    def record(
        number: int = 1,
        *,
        documents: int = 8,
        digest: str = DIGEST,
        theirs: str = "150.05",
        served: str = "150",
        **far: str,
    ) -> Any:
        of = window(f"agreement-{number}", "shared-a", "agreement", "incumbent", arguments={"digest": DIGEST})
        told = {"tokens": 100, "served": served, "theirs": theirs, "ours": "150.01"}
        rows = {"median": "0.001", "ninth_decile": "0.002", "largest": "0.01"}
        measure = AgreementMeasure(
            record=digest,
            library=f"exllamav3 1.{number}",
            device="a card",
            distance=RowSpread.model_validate(rows | {name: value for name, value in far.items() if name in rows}),
            float16=RowSpread(median="0.0005", ninth_decile="0.001", largest=far.get("own", "0.001")),
            another_batch=far.get("another", "0.005"),
            documents=tuple(AgreementDocument.model_validate({"id": f"d{at}"} | told) for at in range(documents)),
        )
        return of, sample(of, measure, INCUMBENT, engagement=both(INCUMBENT))

    def one(*records: Any, **parameters: Any) -> GateInput:
        return given(parameters, SHARED, list(records))

    far, passed = record(median="0.0011"), "every record agrees"
    limits = {f"exllamav3 1.1: {name} relative error": f"<= {limit}" for name, limit in (
        ("median", "0.001000"), ("ninth decile", "0.002000"), ("largest", "0.010000"))}  # fmt: skip
    return [
        ("at-the-limits_pass", one(record()), "PASS", passed, limits),
        ("two-versions_pass", one(record(), record(2)), "PASS", passed),
        ("our-own-flips-an-expert_pass", one(record(another="0", own="0.005")), "PASS", passed),
        ("three-times-noise-allowed_pass", one(far, times_noise="3"), "PASS", passed),
        (
            "perplexities-beyond-any-number_invalid",
            one(record(theirs="1000000", served="2000000")),
            "INVALID",
            "a perplexity beyond any number",
        ),
        (
            "our-perplexity-beyond-any-number_invalid",
            one(record(theirs="1000000")),
            "INVALID",
            "a perplexity beyond any number",
        ),
        ("every-row-too-far_fail", one(far), "FAIL", "median relative error of logits 0.001100, the limit is 0.001000"),
        ("one-row-of-five-too-far_fail", one(record(ninth_decile="0.0021")), "FAIL", "ninth decile relative error"),
        (
            "one-row-beyond-any-flip_fail",
            one(record(largest="0.011")),
            "FAIL",
            "largest relative error of logits 0.011",
        ),
        ("a-flip-that-neither-has_fail", one(record(another="0.0001")), "FAIL", "largest relative error"),
        (
            "a-record-that-claims-any-noise_fail",
            one(record(another="1000000", largest="0.6")),
            "FAIL",
            "0.600000, the limit is 0.500000",
        ),
        ("at-the-cap_pass", one(record(another="1000000", largest="0.5")), "PASS", passed),
        ("a-lower-cap_fail", one(record(largest="0.009"), largest="0.008"), "FAIL", "largest relative error"),
        ("one-version-too-far_fail", one(record(), record(2, median="0.1")), "FAIL", "exllamav3 1.2: median"),
        ("another-perplexity_fail", one(record(theirs="150.2")), "FAIL", "perplexity 4.490"),
        ("a-lower-perplexity_fail", one(record(theirs="149.8")), "FAIL", "perplexity 4.472"),
        ("a-stricter-line_fail", one(record(), perplexity="0.0004"), "FAIL", "perplexity"),
        ("served-without-any-loss_invalid", one(record(served="-250000")), "INVALID", "work out in binary64"),
        ("another-record_invalid", one(record(digest="b" * 64)), "INVALID", "sealed was aaaa"),
        ("few-documents_invalid", one(record(documents=7)), "INVALID", "7 documents, at least 8"),
        ("no-document_invalid", one(record(documents=0), documents=0), "INVALID", "0 documents, at least 0"),
        ("few-documents-allowed_pass", one(record(documents=1), documents=1), "PASS", passed),
        ("not-measured_invalid", given({}, SHARED, [(record()[0], None)]), "NOT_RUN", "no sample"),
        ("sample-of-another-kind_invalid", one(other(record())), "INVALID", "no reading for"),
        ("unknown-parameter_invalid", one(record(), margin="1"), "INVALID", "margin"),
    ]


def vision() -> list[Case]:
    def arm(name: str, right: str, number: str = "482") -> Any:
        of = window(f"vision-{name}", "shared-a", "vision", name)
        cards = tuple(
            VisionCard(id=f"i{at:02d}", expected=number, answer=number if mark == "+" else "7", right=mark == "+")
            for at, mark in enumerate(right)
        )
        variant = INCUMBENT if name == "incumbent" else "lna2"
        return of, sample(of, VisionMeasure(cards=cards), variant, engagement=both(variant))

    def one(
        after: str, parameters: dict[str, Any] | None = None, before: str = "+" * 15 + "-" * 5, **changes: Any
    ) -> GateInput:
        limits = {"lost": 2, "incumbent": "0.5"} | (parameters or {})
        return given(limits, SHARED, [arm("incumbent", before), arm("candidate", after, **changes)])

    return _trials(one, [arm("incumbent", "+++++")], "card", "shown", arm)


def _trials(one: Any, alone: list[Any], noun: str, verb: str, arm: Any) -> list[Case]:
    """What both gates of yes and no have to decide alike."""
    boots = FORCING if noun == "item" else SHARED
    before = "+" * 15 + "-" * 5
    others = {"choices": 5} if noun == "item" else {"number": "483"}
    poor = given({"incumbent": "0.9"}, boots, [arm("incumbent", before)])
    return [
        ("the-same_pass", one(before), "PASS", f"no {noun} was lost", {"lost": "<= 2"}),
        ("one-lost-one-won_pass", one("-" + "+" * 15 + "-" * 4), "PASS", f"no {noun} was lost"),
        ("two-lost_pass", one("--" + "+" * 13 + "-" * 5), "PASS", f"no {noun} was lost"),
        ("three-lost_fail", one("---" + "+" * 12 + "+" * 5), "FAIL", "lost: i00, i01, i02"),
        ("all-lost_fail", one("-" * 20), "FAIL", "lost: i00"),
        ("lost-beyond-chance_fail", one("-" * 5 + "+" * 10 + "-" * 5, {"lost": 9}), "FAIL", "lost: i00"),
        ("standing-configuration_pass", given({}, boots, alone), "PASS", "the standing configuration"),
        ("standing-too-poor_fail", poor, "FAIL", "the standing configuration"),
        ("incumbent-too-poor_unresolved", one(before, {"incumbent": "0.9"}), "UNRESOLVED", "the incumbent"),
        (f"other-{noun}s_invalid", one(before, **others), "INVALID", f"the arms were {verb} other"),
        ("candidate-alone_invalid", given({}, boots, [arm("candidate", before)]), "INVALID", f"{verb} nothing"),
        ("sample-of-another-kind_invalid", given({}, boots, [other(alone[0])]), "INVALID", "no reading for"),
        ("not-measured_invalid", given({}, boots, [(alone[0][0], None)]), "NOT_RUN", "no sample"),
        ("unknown-parameter_invalid", one(before, {"words": 1}), "INVALID", "words"),
    ]
