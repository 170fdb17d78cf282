"""Cases of the gate about several streams at once."""

from __future__ import annotations

from typing import Any

from runner.gates.base import GateInput
from runner.model.sample import FinishMeasure
from tests.gates.build import INCUMBENT, LAYERS, Case, both, given, sample, window
from tests.gates.cases_speed import block

BOOTS = {"shared-a": "shared", "shared-b": "shared"}


def _rounds(language: str, *gains: float, streams: int = 4, rate: float = 100.0, **changes: Any) -> list[Any]:
    found = []
    for number, gain in enumerate(gains, 1):
        for arm, speed in (("incumbent", rate), ("candidate", rate * gain)):
            of = window(
                f"four-streams-{language}-{number}-{arm}",
                changes.get(arm, "shared-a"),
                "speed",
                arm,
                arguments={"language": language, "round": number},
            )
            variant = INCUMBENT if arm == "incumbent" else "lna2"
            measure = block(speed, number).model_copy(update={"streams": streams})
            found.append((of, sample(of, measure, variant, engagement=both(variant, layers=LAYERS[:1]))))
    return found


def _one(*readings: Any, **parameters: Any) -> GateInput:
    return given(parameters, BOOTS, [reading for part in readings for reading in part])


def four_streams() -> list[Case]:
    rounds, one = _rounds, _one
    same, faster = (1.0, 1.01, 0.99, 1.02, 1.0, 0.98), (1.1, 1.12, 1.09, 1.1, 1.08, 1.11)
    slower = (0.8, 0.81, 0.79, 0.83, 0.82, 0.8)
    english = rounds("en", *faster)
    told = {"en low end": ">= -0.05", "en candidate": ">= 90"}
    other = [(english[0][0], english[0][1].model_copy(update={"measure": FinishMeasure(texts=())}))]
    return [
        ("faster_pass", one(english, rounds("ja", *faster), least=90), "PASS", "no slower in any language", told),
        ("the-same_pass", one(rounds("en", *same)), "PASS", "no slower", {"en candidate": ""}),
        ("FL-68-one-language-slower_fail", one(english, rounds("ja", *slower)), "FAIL", "ja: 0.805 times"),
        ("below-the-least_fail", one(rounds("en", *same), least=142), "FAIL", "en: 90.0 tok/s, at least 142"),
        ("T1-fused-and-slower_fail", one(rounds("code", *slower), rounds("en", *slower)), "FAIL", "code: 0.805"),
        ("doubt-and-slower_fail", one(rounds("en", *same, 0.5), rounds("ja", *slower)), "FAIL", "ja: 0.805"),
        (
            "one-round-far-off_unresolved",
            one(rounds("en", *same, 0.9)),
            "UNRESOLVED",
            "en: the interval reaches -0.105",
        ),
        ("three-streams_invalid", one(rounds("en", *same, streams=3)), "INVALID", "another number of streams"),
        ("five-rounds_invalid", one(rounds("en", *same[:5])), "INVALID", "5 rounds of the incumbent and 5"),
        ("a-block-is-missing_invalid", one(english[:-1]), "INVALID", "6 rounds of the incumbent and 5"),
        ("rounds-of-two-boots_invalid", one(rounds("en", *same, candidate="shared-b")), "INVALID", "of two boots"),
        ("no-rate_invalid", one(rounds("en", *same[:5], 1e-9)), "INVALID", "a block without a rate"),
        ("sample-of-another-kind_invalid", one(other), "INVALID", "no reading for"),
        ("not-measured_invalid", given({}, BOOTS, [(english[0][0], None)]), "NOT_RUN", "no sample"),
        ("unknown-parameter_invalid", one(english, ratio=1), "INVALID", "ratio"),
    ]


def four_streams_alike() -> list[Case]:
    """Version 2."""

    def wrote(readings: list[Any], *others: str, digest: str | None = "c" * 64, prompt: str = "") -> list[Any]:
        """Both arms the same text, but for the candidate's in the rounds of ``others``: that one is ``digest``."""
        found = []
        for of, taken in readings:
            (only,) = taken.measure.texts
            other = of.arm == "candidate" and str(of.arguments["round"]) in others
            changes = {"output_digest": digest if other else "a" * 64}
            changes |= {"prompt_digest": prompt} if other and prompt else {}
            measure = taken.measure.model_copy(update={"texts": (only.model_copy(update=changes),)})
            found.append((of, taken.model_copy(update={"measure": measure})))
        return found

    same, slower = (1.0, 1.01, 0.99, 1.02, 1.0, 0.98, 1.01, 1.0), (0.8, 0.81, 0.79, 0.83, 0.82, 0.8)
    english = _rounds("en", *same)
    two = wrote(english, "1", "5")
    three = wrote(english, "1", "5", "6")
    return [
        ("alike_pass", _one(wrote(english), alike="0.9"), "PASS", "no slower", {"texts alike": ">= 0.9"}),
        ("as-many-as-needed_pass", _one(two, alike="0.75"), "PASS", "no slower", {"texts alike": ">= 0.75"}),
        ("not-asked-about_pass", _one(three), "PASS", "no slower in any language", {"texts alike": ""}),
        ("least-is-kept_pass", _one(two, alike="0.75", least=80), "PASS", "", {"en candidate": ">= 80"}),
        ("other-texts_fail", _one(three, alike="0.75"), "FAIL", "another text after 3 of 8 prompts"),
        (
            "texts-are-unknown_fail",
            _one(wrote(english, "1", "5", "6", digest=None), alike="0.75"),
            "FAIL",
            "another text after 3 of 8 prompts",
        ),
        ("nobody-knows-any-text_fail", _one(english, alike="0.75"), "FAIL", "another text after 8 of 8 prompts"),
        ("slower_fail", _one(wrote(_rounds("en", *slower)), alike="0.75"), "FAIL", "en: 0.805 times"),
        ("slower-and-other-texts_fail", _one(wrote(_rounds("en", *slower), *"123"), alike="0.75"), "FAIL", "en: 0.805"),
        (
            "one-round-far-off_unresolved",
            _one(wrote(_rounds("en", *same[:6], 0.9)), alike="0.75"),
            "UNRESOLVED",
            "en: the interval reaches -0.105",
        ),
        (
            "other-texts-and-far-off_fail",
            _one(wrote(_rounds("en", *same[:6], 0.9), *"123"), alike="0.75"),
            "FAIL",
            "another text after 3 of 7 prompts",
        ),
        ("other-prompts_invalid", _one(wrote(english, "4", prompt="d" * 64)), "INVALID", "en, round 4: en-0: the arms"),
        ("five-rounds_invalid", _one(wrote(_rounds("en", *same[:5]))), "INVALID", "5 rounds of the incumbent and 5"),
        (
            "five-rounds-of-other-texts_invalid",
            _one(wrote(_rounds("en", *same[:5]), "1"), alike=1),
            "INVALID",
            "5 rounds",
        ),
        ("not-measured_invalid", given({}, BOOTS, [(english[0][0], None)]), "NOT_RUN", "no sample"),
        ("unknown-parameter_invalid", _one(wrote(english), ratio=1), "INVALID", "ratio"),
    ]
