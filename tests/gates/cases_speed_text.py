"""What the timed blocks wrote: another text is another workload, or work that was not done."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from runner.model.plan import PlannedWindow
from runner.model.sample import Sample, SpeedMeasure
from tests.gates.build import CANDIDATE, Case
from tests.gates.cases_speed import Readings, all_of, alone, one, quads

TEXTS = 5
"""Of one block: six quads have thirty texts."""


def wrote(readings: Readings, *others: str, texts: int = 1, prompts: int = 1) -> Readings:
    """The readings with texts: every block the same, but for those named ``window/text`` in ``others``.

    With two ``prompts`` each half of a quad has its own, and what follows it.
    """

    def edit(planned: PlannedWindow, taken: Sample) -> Sample:
        assert isinstance(taken.measure, SpeedMeasure)
        half = int(planned.id[-1]) > 2 and prompts == 2
        (only,) = taken.measure.texts
        made = tuple(
            only.model_copy(
                update={
                    "id": f"en-{number}",
                    "prompt_digest": only.prompt_digest[:-1] + ("f" if half else only.prompt_digest[-1]),
                    "output_digest": ("c" if f"{planned.id}/{number}" in others else "b" if half else "a") * 64,
                }
            )
            for number in range(texts)
        )
        told = {
            "texts": made,
            "server_tokens": taken.measure.server_tokens * texts,
            "server_decode_ns": taken.measure.server_decode_ns * texts,
        }
        return taken.model_copy(update={"measure": taken.measure.model_copy(update=told)})

    return all_of(readings, edit)


def texts() -> list[Case]:
    """Cases of the parameter ``texts``."""
    faster, lonely = quads(1.5), alone()
    usual = [*faster, *lonely]
    fast = [f"{planned.id}/0" for planned, taken in faster if taken.variant == CANDIDATE]
    parted = [f"{name}/{text}" for name, text in (("q1-b2", 0), ("q2-b1", 3), ("q6-b4", 4))]
    return [
        ("case-26-equal-texts_pass", one(wrote(usual), texts="equal"), "PASS", "FASTER"),
        ("case-26-equal-texts-of-two-prompts_pass", one(wrote(usual, prompts=2), texts="equal"), "PASS", "FASTER"),
        ("case-26-other-text-not-asked-about_pass", one(wrote(usual, "q4-b2/0")), "PASS", "FASTER"),
        (
            "case-26-easier-text_invalid",
            one(wrote(usual, "q4-b2/0"), texts="equal"),
            "INVALID",
            "quad q4: en-0 is another text",
        ),
        ("case-26-texts-unknown_invalid", one(usual, texts="equal"), "INVALID", "quad q1: en-0"),
        ("other-prompts-in-both-halves_invalid", one(_crossed(wrote(usual, prompts=2))), "INVALID", "other prompts"),
        (
            "other-prompts-in-the-second-half_invalid",
            one(_crossed(wrote(usual, prompts=2), {"q1-b4": "q1-b1"})),
            "INVALID",
            "other prompts",
        ),
        (
            "other-prompts-in-the-first-half_invalid",
            one(_crossed(wrote(usual, prompts=2), {"q1-b1": "q1-b4"})),
            "INVALID",
            "other prompts",
        ),
        (
            "work-left-out-while-timed_fail",
            one(wrote(usual, *fast), texts="mostly"),
            "FAIL",
            "another text after 6 of 6",
        ),
        ("timed-texts-unknown_fail", one(usual, texts="mostly"), "FAIL", "another text after 6 of 6 prompts"),
        (
            "three-texts-of-30-part_pass",
            one(wrote(usual, *parted, texts=TEXTS), texts="mostly"),
            "PASS",
            "FASTER",
        ),
        (
            "four-texts-of-30-part_fail",
            one(wrote(usual, *parted, "q3-b2/1", texts=TEXTS), texts="mostly"),
            "FAIL",
            "another text after 4 of 30",
        ),
        (
            "as-many-part-as-the-seat-allows_pass",
            one(
                wrote(usual, *[f"q1-b2/{at}" for at in range(TEXTS)], "q2-b1/0", texts=TEXTS),
                texts="mostly",
                text_share="0.8",
            ),
            "PASS",
            "FASTER",
        ),
        (
            "more-part-than-the-seat-allows_fail",
            one(
                wrote(usual, *[f"q1-b2/{at}" for at in range(TEXTS)], "q2-b1/0", "q3-b1/0", texts=TEXTS),
                texts="mostly",
                text_share="0.8",
            ),
            "FAIL",
            "another text after 7 of 30",
        ),
    ]


def _crossed(
    readings: Readings, swapped: Mapping[str, str] = MappingProxyType({"q1-b2": "q1-b3", "q1-b3": "q1-b2"})
) -> Readings:
    """Blocks with the prompts of others."""
    taken_of = {planned.id: taken for planned, taken in readings}

    def edit(planned: PlannedWindow, taken: Sample) -> Sample:
        other = taken_of[swapped.get(planned.id, planned.id)].measure
        assert isinstance(taken.measure, SpeedMeasure)
        assert isinstance(other, SpeedMeasure)
        return taken.model_copy(update={"measure": taken.measure.model_copy(update={"texts": other.texts})})

    return all_of(readings, edit)
