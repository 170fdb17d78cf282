"""Which libraries a planned boot loads, under which names, and the variant that it starts with."""

from __future__ import annotations

from runner.model.base import Arm
from runner.model.plan import Plan, PlannedBoot
from runner.plan_layout import KNOCK_OUTS


def library_of(variant: str, planned: PlannedBoot, plan: Plan) -> str:
    """Whose library answers to a variant's name: in a knock-out boot that of the knock-out to the candidate's."""
    return planned.role if planned.role in KNOCK_OUTS and variant == plan.variants.get("candidate") else variant


def loads(planned: PlannedBoot, plan: Plan) -> dict[str, str]:
    """Name of the library behind each variant that the boot loads, the incumbent's first."""
    if planned.role == "desk" and planned.product:
        return {}  # a product is read there, no kernel runs
    names = dict.fromkeys((plan.variants["incumbent"], *planned.libraries))
    return {variant: library_of(variant, planned, plan) for variant in names}


def first_variant(planned: PlannedBoot, plan: Plan) -> str:
    """What is switched on at start."""
    arm: Arm = "candidate" if planned.role in ("candidate-only", KNOCK_OUTS[0]) else "incumbent"
    return plan.variants[arm]


__all__ = ["first_variant", "library_of", "loads"]
