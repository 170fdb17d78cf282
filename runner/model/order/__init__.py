"""A work order: what is wanted, of whom, on which seat, and what decides."""

from runner.model.order.bake import Bake
from runner.model.order.candidate import Candidate, Target
from runner.model.order.facts import Fact, Reading
from runner.model.order.intent import Craftsperson, Intent, People
from runner.model.order.judgement import GateRequest, KillLine, Primary
from runner.model.order.order import (
    BakeOrder,
    GateOrder,
    KernelOrder,
    Order,
    OrderFile,
    OverlayOrder,
    PatchOrder,
    RecipeOrder,
    RunnableOrder,
    SurveyOrder,
    WorkOrder,
    files_of,
    load_order,
    parse_order,
)
from runner.model.order.overlay import Overlay
from runner.model.order.patch import Patching

__all__ = [
    "Bake",
    "BakeOrder",
    "Candidate",
    "Craftsperson",
    "Fact",
    "GateOrder",
    "GateRequest",
    "Intent",
    "KernelOrder",
    "KillLine",
    "Order",
    "OrderFile",
    "Overlay",
    "OverlayOrder",
    "PatchOrder",
    "Patching",
    "People",
    "Primary",
    "Reading",
    "RecipeOrder",
    "RunnableOrder",
    "SurveyOrder",
    "Target",
    "WorkOrder",
    "files_of",
    "load_order",
    "parse_order",
]
