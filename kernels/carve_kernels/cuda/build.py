"""Builds a GPU variant's shared library with nvcc, once for each content of sources, flags, architecture and compiler.

It needs no GPU and nothing of torch: the library has a plain C ABI (``kernels/cuda/abi.h``) and carries the CUDA
runtime inside. The compiler's own record of registers, spills and shared memory is kept beside it.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path

from carve_kernels.compiler import Workplace, build_once, compiler_words, read_sources, run_compiler
from carve_kernels.cuda.registry import sources_folder, variant
from runner.errors import InputError

ARCHITECTURES = ("sm_90a", "sm_120a", "sm_89", "sm_80")
_FLAGS = (
    "-std=c++17",
    "-O3",
    "-shared",
    "-cudart",
    "static",
    "-Xcompiler",
    "-fPIC,-fvisibility=hidden,-Wall",
    "-Xptxas",
    "-v",
)
_FUNCTION = re.compile(r"Compiling entry function '(\w+)' for '(\w+)'")
_SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS = re.compile(r"Used (\d+) registers")


@dataclass(frozen=True)
class Resources:
    """What ptxas says about one kernel."""

    kernel: str
    """Mangled name."""
    registers: int
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int


def build(name: str, architecture: str = "sm_90a", folder: Path | None = None) -> Path:
    """The library of GPU variant ``name``, built from ``folder`` (default: this checkout's ``kernels``) if need be.

    Returns ``<cache>/build/<digest>/lib<name>.so``, with ``resources.json`` beside it. Two builders at once are safe:
    the finished folder appears by one rename. Raises InputError with the compiler's own words where the source does not
    compile or the architecture is not one of ARCHITECTURES, StateError where there is no nvcc.
    """
    chosen, folder = variant(name), (folder or sources_folder()).resolve()
    if architecture not in ARCHITECTURES:
        raise InputError("no such GPU architecture", expected=", ".join(ARCHITECTURES), found=architecture)
    compiler = compiler_words("NVCC", "nvcc", "CUDA", "install the CUDA toolkit (13.0)")
    flags = [*_FLAGS, *_target(architecture), *(f"-D{define}" for define in chosen.defines)]
    library = f"lib{name}.so"
    sources = read_sources(folder, chosen.source)
    digest = sources.digest(compiler, flags=flags, library=library)

    def make(place: Workplace) -> None:
        command = [*compiler, *flags, chosen.source, "-o", str(place.finished / library)]
        result = run_compiler(command, sources, place)
        text = json.dumps([asdict(each) for each in resources(result.stderr)], indent=1)
        (place.finished / "resources.json").write_text(text + "\n", encoding="utf-8")

    return build_once(sources, digest, library, make)


def resources(words: str) -> list[Resources]:
    """The kernels of a compilation from what ``ptxas -v`` printed."""
    found: list[Resources] = []
    kernel, spills = "", (0, 0, 0)
    for line in words.splitlines():
        if match := _FUNCTION.search(line):
            kernel = match[1]
        elif match := _SPILLS.search(line):
            spills = (int(match[1]), int(match[2]), int(match[3]))
        elif (match := _REGISTERS.search(line)) and kernel:
            found.append(Resources(kernel, int(match[1]), *spills))
            kernel, spills = "", (0, 0, 0)
    return found


def _target(architecture: str) -> list[str]:
    number = architecture.removeprefix("sm_")
    return ["-gencode", f"arch=compute_{number},code=sm_{number}"]
