"""What an order may ask of a seat that is a container, or a server of somebody else's."""

from __future__ import annotations

from runner.check import check
from runner.model.order import KernelOrder, WorkOrder, load_order
from runner.paths import source_root
from runner.steps.seats import load_manifest

KERNEL = load_order(source_root() / "orders" / "lna2-T1.yaml").order
BASELINE = load_order(source_root() / "orders" / "mini-baseline.yaml").order


def messages(order: WorkOrder, seat: str) -> str:
    return "\n".join(fault.message for fault in check(order, load_manifest(seat)))


def test_a_server_of_somebody_elses_is_looked_at_by_gate_orders_alone() -> None:
    assert "only a gate order can look at it" in messages(KERNEL, "attach")
    assert "only a gate order can look at it" not in messages(BASELINE, "attach")


def test_a_container_seat_is_judged_with_its_own_strict() -> None:
    assert "judged with strict" not in messages(KERNEL, "ohtani-tp8")
    assert isinstance(KERNEL, KernelOrder)
    loose = KERNEL.model_copy(update={"candidate": KERNEL.candidate.model_copy(update={"strict": 1})})
    assert "seat ohtani-tp8 is judged with strict 2; 1 is for production" in messages(loose, "ohtani-tp8")
