"""The GPU desk's reference and comparisons, on the processor: they are plain torch."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from carve_kernels.desk import layers
from carve_kernels.desk.gpu import build_incumbent, compare, incumbents, reference, sanitizer
from carve_kernels.exl3.codebook import Codebook
from carve_kernels.exl3.linear import Linear, dequantise, reconstruct
from carve_kernels.exl3.trellis import windows

from runner.errors import SeatError


def made(bits: int, book: Codebook) -> Linear:
    return layers.linear(np.random.default_rng(bits), 128, 256, bits, book)


def on_torch(part: Linear) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return torch.from_numpy(part.trellis.view(np.int16)), torch.from_numpy(part.suh), torch.from_numpy(part.svh)


@pytest.mark.parametrize("bits", range(1, 9))
@pytest.mark.parametrize("book", Codebook)
def test_states_and_weights_are_those_of_the_format(bits: int, book: Codebook) -> None:
    part = made(bits, book)
    trellis, _, _ = on_torch(part)
    assert np.array_equal(reference.states(trellis).numpy(), windows(part.trellis).astype(np.int64))
    assert np.array_equal(reference.rotated_weights(trellis, book).numpy(), reconstruct(part.trellis, book))


def test_a_linear_is_its_plain_weight() -> None:
    part = made(6, Codebook.MCG)
    x = np.random.default_rng(1).standard_normal((3, 128))
    found = reference.linear(torch.from_numpy(x), *on_torch(part), Codebook.MCG)
    assert np.allclose(found.numpy(), x @ dequantise(part).astype(np.float64), rtol=1e-5, atol=1e-6)


def test_a_reading_finds_the_worst_row_of_the_worst_matrix() -> None:
    true = torch.ones(4, 8, dtype=torch.float64)
    bad = true.float().clone()
    bad[2] *= 1.5
    reading = compare.reading([true.float(), bad], [true, true])
    assert reading.relative_error == pytest.approx(0.5)
    assert reading.norm_ratio == pytest.approx(1.5)
    assert reading.finite


def test_an_element_nobody_wrote_is_not_finite() -> None:
    out = torch.ones(2, 4)
    out[1, 3] = torch.nan
    assert not compare.reading([out], [torch.ones(2, 4, dtype=torch.float64)]).finite


def test_equal_is_bit_by_bit() -> None:
    assert compare.equal([torch.tensor([torch.nan])], [torch.tensor([torch.nan])])
    assert not compare.equal([torch.tensor([0.0])], [torch.tensor([-0.0])])


@pytest.mark.parametrize(
    ("words", "errors"),
    [
        ("========= ERROR SUMMARY: 0 errors", 0),
        ("========= ERROR SUMMARY: 65 errors", 65),
        ("========= RACECHECK SUMMARY: 2 hazards displayed (1 error, 1 warning)", 2),
        ("========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)", 0),
        ("killed", -1),
    ],
)
def test_a_tools_summary_is_read(words: str, errors: int) -> None:
    assert sanitizer.errors_of(words) == errors


def test_absent_kernels_become_nulls() -> None:
    listed = ("U tfp_exl3_gemm_kernel_fp32_b5_cb1", "U _Z9exl3_gemvv", "U cudaMalloc", "00000000 T _Z9exl3_gemvv")
    text = build_incumbent.absent(build_incumbent.left_out("\n".join(listed)))
    assert "tfp_exl3_gemm_kernel_fp32_b5_cb1: .zero" in text
    assert "_Z9exl3_gemvv" not in text
    assert "cudaMalloc" not in text


@pytest.mark.parametrize(
    ("names", "functions"),
    [
        (["tfp_exl3_gemm_kernel_fp32_b5_cb1"], ()),
        (["_Z14exl3_gemv_int8v", "tfp_a"], ("_Z14exl3_gemv_int8v",)),
        (None, ()),
    ],
)
def test_what_was_left_out_of_an_incumbent_is_told(
    names: list[str] | None, functions: tuple[str, ...], tmp_path: Path
) -> None:
    if names is not None:
        (tmp_path / incumbents.ABSENT).write_text(json.dumps(names))
    assert incumbents.without(tmp_path / "exllamav3_ext.so") == functions


def test_an_incumbent_without_a_fast_path_is_none(tmp_path: Path) -> None:
    """Its stub answers 0, which means that the slower path is to be taken: the incumbent was timed too slow."""
    (tmp_path / incumbents.ABSENT).write_text(json.dumps(["_Z20exl3_gemv_try_launchPPviiii"]))
    with pytest.raises(SeatError, match="lacks a fast path"):
        incumbents.load(tmp_path / "exllamav3_ext.so")


def test_the_path_for_few_rows_is_always_compiled() -> None:
    assert "exl3_gemv" in build_incumbent._ALWAYS


INITCHECK = """========= COMPUTE-SANITIZER
========= Uninitialized __global__ memory read of size 4 bytes
=========     at void at::native::vectorized_elementwise_kernel<4, float>(int, float)+0x2b0
=========     by thread (64,0,0) in block (0,0,0)
=========
========= Uninitialized __global__ memory read of size 16 bytes
=========     at void carve::routed_experts<2, (carve::Codebook)1, 1>(carve::Problem)+0x70
=========     by thread (0,0,0) in block (1,0,0)
=========
========= ERROR SUMMARY: 2 errors
"""


def test_reports_on_other_kernels_do_not_count() -> None:
    assert sanitizer.errors_naming(INITCHECK, "routed_experts") == 1
    assert sanitizer.errors_naming(INITCHECK, "dense_kernel") == 0
    assert sanitizer.errors_naming("killed", "routed_experts") == -1
