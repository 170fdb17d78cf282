"""Loading a variant for each instruction set this machine has; a copy of the GPU's sources to break."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from carve_kernels.build import build
from carve_kernels.cuda.registry import sources_folder
from carve_kernels.library import Library

Load = Callable[..., Library]


def available() -> list[str]:
    """Instruction sets of this processor, best first."""
    flags = set(Path("/proc/cpuinfo").read_text().split())
    avx2 = {"avx2", "fma", "f16c"} <= flags
    avx512 = avx2 and {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512vbmi"} <= flags
    return ["avx512"] * avx512 + ["avx2"] * avx2 + ["scalar"]


@pytest.fixture(params=available())
def isa(request: pytest.FixtureRequest) -> str:
    """Each instruction set of this machine."""
    return str(request.param)


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """``load(name, isa=..., rank=...)``: a copy of the variant's library with counters of its own.

    A library chooses when it is loaded, and one path is loaded once a process; so each test gets its own copy.
    """
    copies = 0

    def load_copy(name: str, isa: str = "") -> Library:
        nonlocal copies
        copies += 1
        copy = tmp_path / f"{copies}-lib{name}.so"
        shutil.copy(build(name), copy)
        before = os.environ.get("CARVE_ISA")
        os.environ["CARVE_ISA"] = isa
        try:
            return Library(copy)
        finally:
            if before is None:
                del os.environ["CARVE_ISA"]
            else:
                os.environ["CARVE_ISA"] = before

    return load_copy


@pytest.fixture
def kernel_sources(tmp_path: Path) -> Path:
    """A folder with what the emulated GPU kernels are built from, for a test that changes it."""
    folder = tmp_path / "kernels"
    for part in ("cuda", "cpu", "carve_kernels/desk/gpu/native/emulator"):
        ignored = shutil.ignore_patterns("faulty", "measured")
        shutil.copytree(sources_folder() / part, folder / part, ignore=ignored)
    return folder
