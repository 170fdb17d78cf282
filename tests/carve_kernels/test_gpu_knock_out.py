"""The knock-out libraries of a GPU seat, as far as they answer without a GPU."""

from __future__ import annotations

import pytest
from carve_kernels.cuda.build import build
from carve_kernels.cuda.library import Device, Library, MoeCall

from runner.errors import SeatError


@pytest.fixture(scope="module")
def libraries() -> dict[str, Library]:
    return {name: Library(build(name)) for name in ("knock-out-decline", "knock-out-zero")}


def test_one_declines_whatever_is_asked(libraries: dict[str, Library]) -> None:
    for rows in (1, 32, 33):
        assert libraries["knock-out-decline"].forward(MoeCall(rows=rows, hidden=256)) == "not-ready"


def test_the_other_keeps_the_candidates_row_limit_and_needs_a_device(libraries: dict[str, Library]) -> None:
    zero = libraries["knock-out-zero"]
    assert zero.forward(MoeCall(rows=33, hidden=256)) == "rows-above-limit"
    with pytest.raises(SeatError, match="CUDA refused a kernel call"):
        zero.forward(MoeCall(rows=32, hidden=256))
    assert zero.scratch_bytes(32, 256, 512, 3, 6) == 128
    assert zero.plan(MoeCall(rows=1), Device())[0] == ""
