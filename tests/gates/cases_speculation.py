"""Cases of the gates about speculation: accepted drafts, and greedy text with and without."""

from __future__ import annotations

from typing import Any

from runner.gates.base import GateInput
from runner.model.engine_measure import AcceptanceMeasure, BandText, GreedyBandMeasure
from runner.model.plan import PlannedWindow
from runner.model.sample import FinishMeasure
from tests.gates.build import INCUMBENT, LAYERS, Case, both, given, sample, window

SPECULATING = {"speculating": "speculating"}
DRAFT_LAYER = "model.layers.4.mlp.experts"
ARMS = ("incumbent", "candidate")


def reading(language: str, arm: str, accepted: int = 110, drafts: int = 100, **changes: Any) -> Any:
    """One window with speculation; 110 of 100 drafts' 300 tokens make 2.1 tokens a step."""
    of = window(
        f"acceptance-{language}-{arm}",
        "speculating",
        "acceptance",
        arm,
        arguments={"language": language, "speculates": True},
    )
    measure = AcceptanceMeasure(
        language=language,
        texts=4,
        tokens=drafts + accepted,
        drafts=drafts,
        draft_tokens=3 * drafts,
        accepted_tokens=accepted,
        accepted_by_position=(accepted - accepted // 3, accepted // 3, 0),
    )
    variant = INCUMBENT if arm == "incumbent" else "lna2"
    return of, sample(of, measure, variant, engagement=both(variant, layers=(*LAYERS, DRAFT_LAYER)), **changes)


def without(drafts: int = 0) -> Any:
    """The same language in a boot without speculation."""
    of = window("acceptance-en-without", "plain", "acceptance", "incumbent")
    of = of.model_copy(update={"arguments": {"language": "en", "speculates": False}})
    measure = AcceptanceMeasure(
        language="en", texts=4, tokens=400, drafts=drafts, draft_tokens=0, accepted_tokens=0, accepted_by_position=()
    )
    return of, sample(of, measure, INCUMBENT)


def _boots(given_: GateInput) -> GateInput:
    """The plan says which boot speculates; a draft layer is asked of no other."""
    config = {"speculating": {"method": "mtp", "num_speculative_tokens": 3}, "plain": None}
    planned = tuple(
        one.model_copy(update={"arguments": {"speculative_config": config[one.id]}}) for one in given_.planned_boots
    )
    return given_.model_copy(update={"planned_boots": planned})


def acceptance() -> list[Case]:
    def one(parameters: dict[str, Any], *readings: Any) -> GateInput:
        return given(parameters, SPECULATING, list(readings))

    def every(parameters: dict[str, Any], **accepted: int) -> GateInput:
        before = [reading(language, "incumbent") for language in ("en", "ja", "code")]
        after = [reading(language, "candidate", accepted.get(language, 110)) for language in ("en", "ja", "code")]
        return one(parameters, *before, *after)

    alone = [reading(language, "incumbent") for language in ("en", "ja")]
    plain = _boots(given({}, SPECULATING | {"plain": "plain"}, [*alone, without()]))
    only_plain = _boots(given({}, {"plain": "plain"}, [without()]))
    swapped = reading("en", "candidate")
    swapped = (swapped[0], swapped[1].model_copy(update={"measure": FinishMeasure(texts=())}))
    restarted = reading("en", "candidate", faults=("a counter of speculation ran backwards",))
    few = [reading("en", "incumbent"), reading("en", "candidate", 108, 99)]
    told = {"acceptance-en-candidate length": ">= 2.1", "acceptance-ja-candidate length": ""}
    return [
        ("as-before_pass", every({"least": {"en": "2.1"}}), "PASS", "accepted as before", told),
        ("at-the-limit_pass", every({"lost": "0.1", "least": {}}, ja=89), "PASS", "accepted as before"),
        ("without-speculation-beside_pass", plain, "PASS", "accepted as before"),
        ("one-language-loses_fail", every({}, ja=99), "FAIL", "ja: 1.990 tokens a step, the incumbent's 2.100"),
        ("below-the-least_fail", every({"least": {"code": "2.93"}}), "FAIL", "code: 2.100 tokens a step, at least"),
        ("nothing-accepted_fail", every({}, en=0), "FAIL", "en: 1.000 tokens a step"),
        ("few-drafts-and-worse_fail", one({}, few[0], reading("en", "candidate", 10, 90)), "FAIL", "en: 1.111"),
        ("few-drafts_unresolved", one({}, *few), "UNRESOLVED", "99 drafts, at least 100"),
        ("standing-configuration_pass", one({"least": {"ja": 2}}, *alone), "PASS", "accepted as before"),
        ("standing-below-the-least_fail", one({"least": {"ja": 3}}, *alone), "FAIL", "ja: 2.100"),
        ("no-draft-at-all_unresolved", one({}, reading("en", "incumbent", 0, 0)), "UNRESOLVED", "0 drafts"),
        ("one-arm-of-a-language_invalid", one({}, *alone, reading("en", "candidate")), "INVALID", "ja: only one arm"),
        ("candidate-alone_invalid", one({}, reading("en", "candidate")), "INVALID", "en: only one arm"),
        ("language-of-a-limit-missing_invalid", every({"least": {"fr": 2}}), "INVALID", "no window in fr"),
        ("nothing-speculates_invalid", only_plain, "INVALID", "no window speculates"),
        ("engine-restarted_invalid", one({}, reading("en", "incumbent"), restarted), "INVALID", "ran backwards"),
        ("sample-of-another-kind_invalid", one({}, reading("en", "incumbent"), swapped), "INVALID", "no reading for"),
        ("not-measured_invalid", one({}, (alone[0][0], None)), "NOT_RUN", "no sample"),
        ("unknown-parameter_invalid", every({"share": 1}), "INVALID", "share"),
    ]


BAND = {"plain": "plain", "speculating": "speculating"}


def text(name: str, common: int = 64, gap: str | None = None, tokens: int = 64) -> BandText:
    """One greedy text."""
    return BandText(id=name, language="en", tokens=tokens, common=common, gap=gap)


SAME = tuple(text(f"d00{number}-en") for number in range(1, 5))


def greedy_band() -> list[Case]:
    def one(suffix: str, boot_name: str, arm: str, *texts: BandText, again: bool = False, of: str = "reference") -> Any:
        arguments = {"again": True} if again else {}
        here: PlannedWindow = window(f"greedy-band-{suffix}", boot_name, "greedy-band", arm, arguments=arguments)
        variant = INCUMBENT if arm == "incumbent" else "lna2"
        measure = GreedyBandMeasure(reference_window=f"greedy-band-{of}", texts=texts)
        return here, sample(here, measure, variant, engagement=both(variant))

    reference = one("reference", "plain", "incumbent", *SAME)
    again = one("again", "plain", "incumbent", *SAME, again=True)

    def with_(parameters: dict[str, Any], *texts: BandText, floor: Any = again) -> GateInput:
        spoke = one("speculating-candidate", "speculating", "candidate", *texts)
        return given(parameters, BAND, [reference, floor, spoke])

    def moved(*texts: BandText) -> Any:
        return one("again", "plain", "incumbent", *texts, again=True)

    tie = (*SAME[:3], text("d004-en", 40, "0.00009"))
    told = {"greedy-band-speculating-candidate widest gap": "<= 0.0001"}
    wide = moved(*SAME[:3], text("d004-en", 12, "0.5"))
    alone = given({}, BAND, [reference, again])
    other = (again[0], again[1].model_copy(update={"measure": FinishMeasure(texts=())}))
    return [
        ("the-same-text_pass", with_({}, *SAME), "PASS", "as good as equally likely", told),
        ("parts-at-a-tie_pass", with_({"tokens": 200}, *tie), "PASS", "as good as equally likely"),
        ("exactly-a-tie_pass", with_({"tokens": 200, "tie": "0.00009"}, *tie), "PASS", "as good as equally likely"),
        ("enough-text_pass", with_({"tokens": 232}, *tie), "PASS", "as good as equally likely"),
        (
            "parts-where-nothing-is-equal_fail",
            with_({}, *SAME[:3], text("d004-en", 3, "0.02")),
            "FAIL",
            "after 3, 0.02",
        ),
        ("a-token-nobody-expected_fail", with_({}, *SAME[:3], text("d004-en", 0)), "FAIL", "not among the likeliest"),
        ("wider-than-the-sealed-tie_fail", with_({"tie": "0.00001"}, *tie), "FAIL", "d004-en: another token after 40"),
        ("short-and-wrong_fail", with_({}, text("d001-en", 3, "0.02")), "FAIL", "d001-en: another token after 3"),
        ("too-little-text_unresolved", with_({}, *SAME[:3]), "UNRESOLVED", "192 tokens were compared, at least 256"),
        ("no-text_unresolved", with_({}), "UNRESOLVED", "0 tokens were compared"),
        ("incumbent-parts-from-itself_unresolved", with_({}, *SAME, floor=wide), "UNRESOLVED", "again, d004-en"),
        ("floor-too-short_unresolved", with_({}, *SAME, floor=moved(*SAME[:1])), "UNRESOLVED", "again: 64 tokens"),
        ("only-the-incumbent-again_invalid", alone, "INVALID", "nothing is compared with the reference"),
        ("only-the-reference_invalid", given({}, BAND, [reference]), "INVALID", "nothing is compared"),
        ("sample-of-another-kind_invalid", given({}, BAND, [reference, other]), "INVALID", "no reading for"),
        ("not-measured_invalid", given({}, BAND, [(reference[0], None)]), "NOT_RUN", "no sample"),
        ("unknown-parameter_invalid", with_({"characters": 15}, *SAME), "INVALID", "characters"),
    ]


__all__ = ["acceptance", "greedy_band"]
