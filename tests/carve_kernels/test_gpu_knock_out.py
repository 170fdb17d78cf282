"""The knock-out libraries of a GPU seat, as far as they answer without a GPU."""

from __future__ import annotations

import ctypes
import shutil
from pathlib import Path

import pytest
from carve_kernels.cuda.build import build
from carve_kernels.cuda.dense import DenseCall, DenseLibrary
from carve_kernels.cuda.library import Device, Library, MoeCall

from runner.digest import sha256_file
from runner.errors import InputError, SeatError
from runner.steps import build as steps
from runner.steps.seats import load_manifest


def dense_call(rows: int) -> DenseCall:
    return DenseCall(abi_version=1, rows=rows, in_features=128, parts=1, bits=3)


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


def test_the_dense_ones_have_the_interface_that_they_stand_for() -> None:
    """They are no libraries of routed experts; a call is declined, or needs a device."""
    for name, answer in (("dense-knock-out-decline", "not-ready"), ("dense-knock-out-zero", "")):
        with pytest.raises(SeatError):
            Library(build(name))
        library = DenseLibrary(build(name))
        assert library.describe == {"name": name}
        assert library.forward(dense_call(33)) == "rows-above-limit"
        if answer:
            assert library.forward(dense_call(32)) == answer
        else:
            with pytest.raises(InputError, match="the CUDA runtime refused the launch"):
                library.forward(dense_call(32))


def test_an_order_for_linears_builds_those(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "build_gpu_library", Path)
    seat = load_manifest("h200-mini")
    built = steps.build_libraries(("dense", "knock-out-zero"), seat, operator="linear")
    assert built == {"dense": Path("dense"), "knock-out-zero": Path("dense-knock-out-zero")}
    assert steps.build_libraries(("knock-out-zero",), seat) == {"knock-out-zero": Path("knock-out-zero")}


def test_FL_10_a_library_that_is_another_one_once_it_is_loaded(tmp_path: Path) -> None:
    """What a rank names is read from its file when it is asked; the build in the cache is a copy's and stays."""
    built = build("stale")
    mounted = Path(shutil.copy(built, tmp_path / "stale.so"))
    before = sha256_file(mounted)
    assert before == sha256_file(built)
    ctypes.CDLL(str(mounted))
    assert sha256_file(mounted) != before
