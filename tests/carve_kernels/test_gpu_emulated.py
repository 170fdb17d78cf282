"""The routed experts' GPU kernels on a machine of fibers: numbers, schedules, poison; the sources are nvcc's own."""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from carve_kernels.desk import layers
from carve_kernels.desk.gpu import emulated
from carve_kernels.desk.gpu.emulated import EmulatedExperts
from carve_kernels.desk.layers import ROUTES, Route, Shape
from carve_kernels.desk.reference import Reference
from carve_kernels.exl3.codebook import Codebook

from runner.errors import SeatError

SHAPE = Shape(hidden=512, intermediate=256, experts=6, topk=3)
LIMIT, BOUND = 10.0, 2e-3
DESIGNS = ("lna2-paired", "lna2-paired-cluster4")


@cache
def layer(bits: int) -> tuple[list[layers.Expert], Reference]:
    experts = layers.experts(np.random.default_rng(bits), SHAPE, bits, Codebook.MCG)
    return experts, Reference(experts)


@cache
def machine(name: str, bits: int) -> EmulatedExperts:
    return EmulatedExperts(emulated.build(name), layer(bits)[0], max_rows=32, topk=SHAPE.topk)


def worst_row(out: np.ndarray, expected: np.ndarray) -> float:
    norm = np.linalg.norm(expected, axis=1)
    error = np.linalg.norm(out - expected, axis=1)
    assert not error[norm == 0].any()
    return float(np.max(error / np.where(norm > 0, norm, 1)))


def batch(route: Route, rows: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    draw = np.random.default_rng(seed)
    ids = layers.routes(draw, route, SHAPE, rows)
    x = layers.inputs(draw, "gaussian", SHAPE, rows)
    return x, ids, draw.uniform(0.05, 1.0, ids.shape).astype(np.float32)


@pytest.mark.parametrize(
    ("design", "rows", "bits"),
    [("lna2", 2, 3), *((design, *case) for design in DESIGNS for case in ((1, 2), (7, 3), (19, 2)))],
)
def test_every_design_computes_what_the_reference_says(design: str, rows: int, bits: int) -> None:
    x, ids, weights = batch(ROUTES[rows % len(ROUTES)], rows, rows)
    declined, out = machine(design, bits).forward(x, ids, weights, limit=LIMIT)
    assert declined == ""
    assert worst_row(out, layer(bits)[1].forward(x, ids, weights, LIMIT)) < BOUND


@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize("route", ROUTES)
def test_no_order_of_blocks_and_copies_changes_a_bit(
    design: str, route: Route, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, ids, weights = batch(route, 3, 5)
    outs = []
    for seed in ("1", "2"):
        monkeypatch.setenv("CARVE_EMULATED_SEED", seed)
        outs.append(machine(design, 2).forward(x, ids, weights, limit=LIMIT)[1])
    first, second = outs
    assert np.array_equal(first, second)


@pytest.mark.parametrize("route", ROUTES)
def test_routes_planned_by_one_warp_and_by_a_block(route: Route) -> None:
    """Thirty slots are the most of one warp here; thirty-three are for the block."""
    for rows in (1, 2, 5, 10, 11):
        x, ids, weights = batch(route, rows, rows)
        declined, out = machine("lna2-paired", 2).forward(x, ids, weights, limit=LIMIT)
        assert declined == ""
        assert worst_row(out, layer(2)[1].forward(x, ids, weights, LIMIT)) < BOUND


@pytest.mark.parametrize("design", DESIGNS)
def test_more_rows_of_an_expert_than_fit_at_once_are_all_there(design: str) -> None:
    x, ids, weights = batch("hot", 19, 6)
    _, out = machine(design, 2).forward(x, ids, weights, limit=LIMIT)
    assert worst_row(out, layer(2)[1].forward(x, ids, weights, LIMIT)) < BOUND


@pytest.mark.parametrize("seed", ["1", "2", "3", "4"])
def test_a_block_that_owned_nothing_of_the_first_experts_still_takes_its_turn(
    seed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One cluster, experts of one row before an expert of three: half of the blocks own sums of the last one only."""
    monkeypatch.setenv("CARVE_EMULATED_CLUSTERS", "1")
    monkeypatch.setenv("CARVE_EMULATED_SEED", seed)
    one = EmulatedExperts(emulated.build("lna2-paired-cluster4"), layer(2)[0], max_rows=32, topk=SHAPE.topk)
    x, _, weights = batch("unique", 3, 11)
    ids = np.array([[0, 1, 2], [3, 4, 5], [4, 5, -1]], np.int32)
    declined, out = one.forward(x, ids, weights, limit=LIMIT)
    assert declined == ""
    assert worst_row(out, layer(2)[1].forward(x, ids, weights, LIMIT)) < BOUND


def test_with_little_shared_memory_an_expert_has_four_rows_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CARVE_EMULATED_SHARED", "120000")
    own = shutil.copy(emulated.build("lna2-paired-cluster4"), tmp_path)  # the library asks the device once
    small = EmulatedExperts(Path(own), layer(2)[0], max_rows=32, topk=SHAPE.topk)
    x, ids, weights = batch("hot", 19, 12)
    declined, out = small.forward(x, ids, weights, limit=LIMIT)
    assert declined == ""
    assert worst_row(out, layer(2)[1].forward(x, ids, weights, LIMIT)) < BOUND


@pytest.mark.parametrize("design", DESIGNS)
def test_nothing_is_read_that_this_launch_has_not_written(design: str) -> None:
    given, once = batch("zipf", 5, 10), machine(design, 2)
    _, out = once.forward(*given, limit=LIMIT)
    once.poison_scratch()
    assert np.array_equal(once.forward(*given, limit=LIMIT)[1], out)


def test_the_kernel_counts_on_its_own() -> None:
    counted = EmulatedExperts(emulated.build("lna2-paired-cluster4"), layer(2)[0], max_rows=32, topk=SHAPE.topk)
    before = {count.layer: count.launches for count in counted.counts()}
    counted.forward(*batch("unique", 2, 7), limit=LIMIT)
    assert counted.counts()[0].launches == before.get(0, 0) + 1


def test_a_kernel_that_forgets_to_wait_is_caught(kernel_sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine's own proof: without its wait for down's bytes the cluster design reads poison or ends too early."""
    kernel = kernel_sources / "cuda" / "cluster.cuh"
    text, wait = kernel.read_text(), "barrier_wait(barrier(shared.down[slot]), item / at.down_slots & 1);"
    assert wait in text
    kernel.write_text(text.replace(wait, ""))
    broken = EmulatedExperts(
        emulated.build("lna2-paired-cluster4", kernel_sources), layer(2)[0], max_rows=32, topk=SHAPE.topk
    )
    x, ids, weights = batch("unique", 2, 9)
    expected = layer(2)[1].forward(x, ids, weights, LIMIT)

    def caught(seed: int) -> bool:
        monkeypatch.setenv("CARVE_EMULATED_SEED", str(seed))
        try:
            _, out = broken.forward(x, ids, weights, limit=LIMIT)
        except SeatError:
            return True
        return not worst_row(out, expected) < BOUND

    assert any(caught(seed) for seed in range(4))
