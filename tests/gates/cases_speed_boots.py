"""Cases of the speed gate whose quads have a boot for each block."""

from __future__ import annotations

from typing import Any

from runner.gates.base import GateInput
from runner.model.plan import PlannedWindow
from runner.model.sample import Sample
from tests.gates.build import INCUMBENT, Case, boot
from tests.gates.cases_speed import ROLES, Readings, all_of, alone, block, one, quads, thin


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


def _pools(asked: GateInput, place: str, tokens: int) -> GateInput:
    """One boot has a pool of ``tokens`` where the others have 4096."""
    records = [had.model_copy(update={"kv_tokens": tokens}) if had.planned == place else had for had in asked.boots]
    return asked.model_copy(update={"boots": tuple(records)})


def _broken_off(readings: Readings, **parameters: int) -> GateInput:
    """Three times a shared boot was broken off and begun again, and once one that times nothing."""
    asked = one(readings, ROLES | {"forcing": "forcing"}, **parameters)
    names = ("shared-a", "shared-a", "shared-b", "forcing")
    records = [boot(name, id=f"{name}-0000001{number}", ended="aborted") for number, name in enumerate(names)]
    return asked.model_copy(update={"boots": (*records, *asked.boots)})


def _incumbent(planned: PlannedWindow, taken: Sample) -> Sample:
    """The incumbent in both arms."""
    return taken.model_copy(update={"variant": INCUMBENT, "engagement": thin(INCUMBENT)})


def _cut_short(readings: Readings, *unmeasured: str, **parameters: Any) -> GateInput:
    """The run ended before the windows whose names begin so were measured."""
    asked = one(readings, **parameters)
    kept = [sample for sample in asked.samples if not sample.window.startswith(unmeasured)]
    return asked.model_copy(update={"samples": tuple(kept)})


def short() -> list[Case]:
    faster, rest = [*quads(1.5), *alone()], ("q4-b3", "q4-b4", "q5", "q6")
    torn = tuple(f"q{quad}-b4" for quad in range(1, 7))
    return [
        ("short-run-whole_pass", one(faster, short="unresolved"), "PASS", "FASTER"),
        ("short-run_fail", _cut_short(faster, *rest, short="unresolved"), "UNRESOLVED", "3 pairs fewer than planned"),
        (
            "short-run-slower_fail",
            _cut_short([*quads(0.5), *alone()], "q6", short="unresolved"),
            "FAIL",
            "SLOWER: log-ratio",
        ),
        (
            "short-run-equal-arms_fail",
            _cut_short(all_of(quads(1.0), _incumbent), *rest, short="unresolved"),
            "UNRESOLVED",
            "equal arms: 3 pairs fewer than planned",
        ),
        ("short-run-not-asked-about_invalid", _cut_short(faster, *rest), "INVALID", "q4-b3: not measured"),
        ("short-run-nothing-whole_invalid", _cut_short(faster, *torn, short="unresolved"), "INVALID", "q1-b4: not"),
        (
            "short-run-without-control_invalid",
            _cut_short(faster, "q6", "alone", short="unresolved"),
            "INVALID",
            "alone-b1: not measured",
        ),
    ]


def paired() -> list[Case]:
    faster, lonely = quads(1.5), alone()
    apart = [*paired_by_boot(faster), *lonely]
    shared = [
        (planned.model_copy(update={"boot": "pair-1-1"}), taken.model_copy(update={"boot": "pair-1-1-0000000a"}))
        if planned.id == "q1-b2"
        else (planned, taken)
        for planned, taken in apart
    ]
    shared_boots = [*faster, *lonely]
    whole = one(apart, PAIRED, pairing="boot")
    return [
        ("boot-pairs_pass", whole, "PASS", "FASTER between boots: log-ratio"),
        ("boot-pairs-equal_fail", one([*paired_by_boot(quads(1.0)), *lonely], PAIRED, pairing="boot"), "FAIL", "SAME"),
        (
            "boot-pairs-one-slow-boot_fail",
            one(all_of(apart, _slow_in_one_boot), PAIRED, pairing="boot", tail="0.9"),
            "FAIL",
            "slow boots: pair-3-1",
        ),
        (
            "boot-pairs-starved-pool_invalid",
            _pools(whole, "pair-3-1", 4055),
            "INVALID",
            "pools of other sizes: pair-3-1",
        ),
        ("boot-pairs-pool-a-block-smaller_pass", _pools(whole, "pair-3-1", 4056), "PASS", "FASTER between boots"),
        (
            "pool-of-the-other-shared-boot_pass",
            _pools(one([*faster, *lonely]), "shared-b", 2048),
            "PASS",
            "FASTER: log",
        ),
        (
            "broken-off-too-often_invalid",
            _broken_off(shared_boots, broken_off=2),
            "INVALID",
            "were broken off: shared-a",
        ),
        ("broken-off-as-often-as-may-be_pass", _broken_off(shared_boots, broken_off=3), "PASS", "FASTER: log"),
        ("broken-off-not-asked-about_pass", _broken_off(shared_boots), "PASS", "FASTER: log"),
        ("boot-pairs-in-shared-boots_invalid", one([*faster, *lonely], pairing="boot"), "INVALID", "share a boot"),
        ("boot-pairs-two-in-one_invalid", one(shared, PAIRED, pairing="boot"), "INVALID", "quad q1: two of its blocks"),
        ("boot-pairs-not-sealed_invalid", one(apart, PAIRED), "INVALID", "come from several boots"),
    ]
