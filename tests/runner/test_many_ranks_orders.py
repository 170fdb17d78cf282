"""Orders for four and eight ranks of one host: they check, plan, and ask of every rank what one rank cannot show."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from recipe.pack import read_pack
from runner.check import check_file
from runner.cli import run
from runner.model.order import load_order
from runner.paths import source_root
from runner.plan import compile_plan
from runner.steps.seats import load_manifest
from runner.verify_order import check_order
from serve.plugin.shards import Cut

ORDERS = source_root() / "orders"
NAMES = {"h200-lna2-tp4": 4, "h200-lna2-tp8": 8, "h200-ds-lna2-tp4": 4, "fake-lna2-tp8": 8}
EVERY_RANK = {"resolved", "engaged", "perturbation", "kld", "speed", "kv-window", "launches", "rank-skew", "restore"}
READS_TEXT = {"ppl-prefill", "ppl-decode", "needle"}


@pytest.mark.parametrize(("name", "ranks"), NAMES.items())
def test_it_checks_and_plans(name: str, ranks: int, capsys: pytest.CaptureFixture[str]) -> None:
    path = ORDERS / f"{name}.yaml"
    assert check_file(path) == ()
    order = load_order(path).order
    manifest = load_manifest(order.target.seat)  # type: ignore[union-attr]  # every kind here has a target
    assert manifest.tensor_parallel == manifest.arguments["tensor_parallel_size"] == ranks
    gates = {gate.name for gate in order.gates}
    assert gates >= EVERY_RANK
    assert bool(gates & READS_TEXT) == (manifest.pack == "recipe/mini/pack"), "random weights say nothing of text"
    check_order(path.read_text(encoding="utf-8"), compile_plan(load_order(path), manifest, {}, "0" * 64), name)
    assert run(["plan", str(path)]) == 0
    told = capsys.readouterr().out
    assert all(f"rank-skew-candidate-{number}" in told for number in (1, 2, 3))


def test_the_small_packs_experts_can_be_cut_for_four_ranks() -> None:
    pack = read_pack(Path(source_root() / "recipe/mini/pack"))
    coded = [entry for entry in pack.tensors.values() if entry.name.endswith(".trellis")]
    assert coded
    for entry in coded:
        along = "in" if ".down_proj." in entry.name else "out"
        shape = torch.empty(entry.shape, dtype=torch.int16)
        share = Cut(rank=3, ranks=4, along=along).apply("trellis", shape, entry.name)
        assert share.numel() * 4 == shape.numel()
