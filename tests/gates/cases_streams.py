"""Cases of the gate about several streams at once."""

from __future__ import annotations

from typing import Any

from runner.gates.base import GateInput
from runner.model.sample import FinishMeasure
from tests.gates.build import INCUMBENT, LAYERS, Case, both, given, sample, window
from tests.gates.cases_speed import block

BOOTS = {"shared-a": "shared", "shared-b": "shared"}


def four_streams() -> list[Case]:
    def rounds(language: str, *gains: float, streams: int = 4, rate: float = 100.0, **changes: Any) -> list[Any]:
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

    def one(*readings: Any, **parameters: Any) -> GateInput:
        return given(parameters, BOOTS, [reading for part in readings for reading in part])

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
