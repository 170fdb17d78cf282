"""Orders that plant a fault on a GPU seat: short, apart from the honest one in the fault alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.check import check_file
from runner.cli import run
from runner.model.order import Candidate, KernelOrder, load_order
from runner.model.seat import SeatManifest
from runner.paths import source_root
from runner.plan import compile_plan, seconds_of
from runner.steps.seats import load_manifest

FAULTS = {
    "h200-undeclared-decline": {"allowed_declines"},
    "h200-flag-reset": {"arguments"},
    "h200-two-streams": {"environment"},
    "h200-row-ceiling": {"max_rows"},
    "h200-prewarm-only": {"library"},
    "h200-untuned-capture": {"library"},
    "h200-one-rank": {"library"},
    "h200-no-reader": {"operator"},
    "h200-stale-extension": {"library"},
    "h200-scratch-per-layer": {"library"},
    "h200-never-released": {"library"},
}
"""By order, what of its seat's manifest or its candidate is not the honest one's, beside names."""
LIBRARY = {"variant", "sources", "files_allowed"}
ON_THE_TOY = """\
schema_version: 1
id: undeclared-decline
kind: kernel
title: Declines that the order does not declare, on the toy seat
date: "2026-11-30"
people: {issuer: maintainers, approver: maintainers}
intent: {goal: Show one thing., why: A test asks for it., definition_of_done: The test passes.}
target: {seat: fake, pack: toy}
candidate: {variant: lna2, max_rows: 64, strict: 2, allowed_declines: []}
gates: [{name: resolved}, {name: engaged}, {name: restore}]
"""


def kernel_order(name: str) -> tuple[KernelOrder, SeatManifest]:
    order = load_order(source_root() / "orders" / f"{name}.yaml").order
    assert isinstance(order, KernelOrder)
    return order, load_manifest(order.target.seat)


@pytest.mark.parametrize(("name", "fields"), FAULTS.items())
def test_a_planted_fault_is_one_difference_and_one_engine_boot(name: str, fields: set[str]) -> None:
    path = source_root() / "orders" / f"{name}.yaml"
    assert check_file(path) == ()
    order, manifest = kernel_order(name)
    honest, seat = kernel_order("h200-lna2-tp2" if manifest.tensor_parallel == 2 else "h200-lna2")
    apart = {field for field in SeatManifest.model_fields if getattr(manifest, field) != getattr(seat, field)}
    own, theirs = order.candidate, honest.candidate
    changed = {field for field in Candidate.model_fields if getattr(own, field) != getattr(theirs, field)}
    changed = changed - LIBRARY | ({"library"} if changed & LIBRARY else set())
    assert (apart - {"name"}) | changed == fields
    plan = compile_plan(load_order(path), manifest, {}, "0" * 64)
    assert [boot.id for boot in plan.boots] == ["desk", "candidate-only"]
    assert seconds_of(plan) <= 60


def test_strict_refuses_a_decline_that_no_order_declares(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = home / "workspace" / "orders" / "undeclared-decline.yaml"
    path.write_text(ON_THE_TOY, encoding="utf-8")
    assert run(["execute", str(path)]) == 2
    assert "lna2 declined rows-above-limit" in capsys.readouterr().out
