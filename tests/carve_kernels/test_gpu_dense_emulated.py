"""The kernel of dense linears on a machine of fibers: every part, splits in any order, poison, its own count."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from carve_kernels.desk import layers
from carve_kernels.desk.gpu import emulated
from carve_kernels.desk.gpu.emulated import EmulatedLinears
from carve_kernels.exl3 import linear
from carve_kernels.exl3.codebook import Codebook
from carve_kernels.exl3.linear import Linear

INPUTS, WIDTHS = 640, (256, 128, 128)
"""Two and a half passes of 256 inputs; the fan's parts are of different widths."""
BOUND = 2e-3


@cache
def fan(bits: int, book: Codebook = Codebook.MCG) -> list[Linear]:
    draw = np.random.default_rng(bits)
    return [layers.linear(draw, INPUTS, width, bits, book) for width in WIDTHS]


def group(bits: int, book: Codebook = Codebook.MCG, folder: Path | None = None) -> EmulatedLinears:
    return EmulatedLinears(emulated.build("dense", folder), fan(bits, book), max_rows=32)


def rows_of(count: int, seed: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((count, INPUTS)).astype(np.float32)


def worst_row(outs: list[np.ndarray], x: np.ndarray, parts: list[Linear]) -> float:
    worst = 0.0
    for out, part in zip(outs, parts, strict=True):
        expected = linear.forward(x.astype(np.float16), part)
        error = np.linalg.norm(out - expected, axis=1) / np.linalg.norm(expected, axis=1)
        worst = max(worst, float(error.max()) if np.isfinite(error).all() else np.inf)
    return worst


@pytest.mark.parametrize(("bits", "rows"), [(6, 1), (6, 9), (4, 8), (3, 17), (3, 32)])
def test_every_part_is_what_the_reference_says(bits: int, rows: int) -> None:
    x = rows_of(rows)
    declined, outs = group(bits).forward(x)
    assert declined == ""
    assert worst_row(outs, x, fan(bits)) < BOUND


@pytest.mark.parametrize("book", [Codebook.DEFAULT, Codebook.MUL1])
def test_the_other_codebooks(book: Codebook) -> None:
    x = rows_of(2)
    declined, outs = group(6, book).forward(x)
    assert declined == ""
    assert worst_row(outs, x, fan(6, book)) < BOUND


@pytest.mark.parametrize("passes", [1, 2, 3])
def test_no_order_of_blocks_changes_a_bit(passes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    once, x, seen = group(6), rows_of(5), []
    for seed in ("1", "2", "3"):
        monkeypatch.setenv("CARVE_EMULATED_SEED", seed)
        declined, outs = once.forward(x, passes=passes)
        assert declined == ""
        seen.append(np.concatenate(outs, axis=1))
    assert worst_row(outs, x, fan(6)) < BOUND
    assert all(np.array_equal(seen[0], other) for other in seen[1:])


def test_nothing_is_read_that_this_launch_has_not_written_and_control_words_are_zero_again() -> None:
    once, x = group(6), rows_of(3)
    first = once.forward(x)[1]
    once.scratch[once.control_bytes :] = 0xFF
    second = once.forward(x)[1]
    assert all(np.array_equal(one, other) for one, other in zip(first, second, strict=True))
    assert not once.scratch[: once.control_bytes].any()


def test_a_decline_writes_and_counts_nothing() -> None:
    once = group(6)
    declined, outs = once.forward(rows_of(33))
    assert declined == "rows-above-limit"
    assert all(np.isnan(out).all() for out in outs)
    assert once.counts() == (0, {})


def test_the_kernel_counts_launches_and_rows() -> None:
    once = group(6)
    for count in (1, 4, 4):
        once.forward(rows_of(count))
    assert once.counts() == (3, {1: 1, 4: 2})


@pytest.mark.parametrize("rows", [1, 5])
def test_half_and_float_inputs_that_are_the_same_give_the_same(rows: int) -> None:
    once, x = group(6), rows_of(rows).astype(np.float16)
    half, single = once.forward(x)[1], once.forward(x.astype(np.float32))[1]
    assert all(np.array_equal(one, other) for one, other in zip(half, single, strict=True))


def test_a_kernel_that_multiplies_too_early_is_caught(kernel_sources: Path) -> None:
    """The machine's own proof: without the wait for the transformed rows a warp multiplies poison."""
    kernel = kernel_sources / "cuda" / "dense.cu"
    text, wait = kernel.read_text(), "quads / 2, rows);\n    __syncthreads();"
    assert wait in text
    kernel.write_text(text.replace(wait, "quads / 2, rows);"))
    x = rows_of(2)
    assert not worst_row(group(6, folder=kernel_sources).forward(x)[1], x, fan(6)) < BOUND
