"""What an order may ask of a seat that is a container, or a server of somebody else's."""

from __future__ import annotations

import pytest

from runner.check import check
from runner.model.order import KernelOrder, WorkOrder, load_order, parse_order
from runner.paths import source_root
from runner.steps.seats import load_manifest
from tests.runner.checks.orders_for_checks import SOUND, fields

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


CAPABLE = SOUND.replace('{name: sanitizer, available: "no", substitute_if_absent: another host}', "NEED")


@pytest.mark.parametrize("need", ["network", "docker", "gpu", "sanitizer", "profiler"])
def test_what_a_kind_of_seat_cannot_have_is_not_called_available(need: str) -> None:
    manifest = load_manifest("cpu-mini-tp2")
    text = CAPABLE.replace("NEED", f'{{name: {need}, available: "yes"}}')
    assert "lacks it" in fields(check(parse_order(text), manifest))["capability.0.available"]
    honest = CAPABLE.replace("NEED", f'{{name: {need}, available: "no", substitute_if_absent: another host}}')
    assert "capability.0.available" not in fields(check(parse_order(honest), manifest))
    needing = SOUND.replace("needs: [gpu]", f"needs: [{need}]")
    assert f"has no {need}" in fields(check(parse_order(needing), manifest))["gates.3.measure.needs"]


def test_what_a_kind_of_seat_has_may_be_called_available() -> None:
    for seat, needs in (
        ("desk-h200", ("gpu", "sanitizer")),
        ("h200-mini-tp2", ("gpu", "profiler")),
        ("fake", ("gpu",)),
    ):
        for need in needs:
            text = CAPABLE.replace("NEED", f'{{name: {need}, available: "yes"}}')
            assert "capability.0.available" not in fields(check(parse_order(text), load_manifest(seat)))
