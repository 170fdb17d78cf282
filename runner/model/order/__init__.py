"""A work order: what is wanted, of whom, on which seat, and what decides."""

from runner.model.order.candidate import Candidate, Target
from runner.model.order.facts import Fact, Reading
from runner.model.order.intent import Craftsperson, Intent, People
from runner.model.order.judgement import GateRequest, KillLine, Primary
from runner.model.order.order import (
    GateOrder,
    KernelOrder,
    Order,
    OrderFile,
    SurveyOrder,
    WorkOrder,
    load_order,
    parse_order,
)

__all__ = [
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
    "People",
    "Primary",
    "Reading",
    "SurveyOrder",
    "Target",
    "WorkOrder",
    "load_order",
    "parse_order",
]
