"""Cases of the speed gate whose quads have a boot for each block."""

from __future__ import annotations

from runner.model.plan import PlannedWindow
from runner.model.sample import Sample
from tests.gates.build import Case
from tests.gates.cases_speed import Readings, all_of, alone, block, one, quads


def paired_by_boot(readings: Readings) -> Readings:
    """Every block of a quad in a boot of its own."""
    return [
        (
            planned.model_copy(update={"boot": f"pair-{planned.id[1]}-{planned.id[-1]}"}),
            taken.model_copy(update={"boot": f"pair-{planned.id[1]}-{planned.id[-1]}-0000000a"}),
        )
        for planned, taken in readings
    ]


PAIRED = {"incumbent-only": "incumbent-only"} | {
    f"pair-{quad}-{block}": "shared" for quad in range(1, 7) for block in range(1, 5)
}


def _slow_in_one_boot(planned: PlannedWindow, taken: Sample) -> Sample:
    """One boot of the candidate is a quarter slower."""
    if planned.id != "q3-b1":
        return taken
    return taken.model_copy(update={"measure": block(112, 2)})


def paired() -> list[Case]:
    faster, lonely = quads(1.5), alone()
    apart = [*paired_by_boot(faster), *lonely]
    shared = [
        (planned.model_copy(update={"boot": "pair-1-1"}), taken.model_copy(update={"boot": "pair-1-1-0000000a"}))
        if planned.id == "q1-b2"
        else (planned, taken)
        for planned, taken in apart
    ]
    return [
        ("boot-pairs_pass", one(apart, PAIRED, pairing="boot"), "PASS", "FASTER between boots: log-ratio"),
        ("boot-pairs-equal_fail", one([*paired_by_boot(quads(1.0)), *lonely], PAIRED, pairing="boot"), "FAIL", "SAME"),
        (
            "boot-pairs-one-slow-boot_fail",
            one(all_of(apart, _slow_in_one_boot), PAIRED, pairing="boot", tail="0.9"),
            "FAIL",
            "slow boots: pair-3-1",
        ),
        ("boot-pairs-in-shared-boots_invalid", one([*faster, *lonely], pairing="boot"), "INVALID", "share a boot"),
        ("boot-pairs-two-in-one_invalid", one(shared, PAIRED, pairing="boot"), "INVALID", "quad q1: two of its blocks"),
        ("boot-pairs-not-sealed_invalid", one(apart, PAIRED), "INVALID", "come from several boots"),
    ]
