"""Builds a GPU variant's shared library with nvcc, once for each content of sources, flags, architecture and compiler.

It needs no GPU and nothing of torch: the library has a plain C ABI (``kernels/cuda/abi.h``) and carries the CUDA
runtime inside. The compiler's own record of registers, spills and shared memory is kept beside it.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from carve_kernels.build import include_closure, run_compiler
from carve_kernels.cuda.registry import sources_folder, variant
from runner.digest import sha256_file, sha256_json
from runner.errors import InputError, StateError
from runner.paths import cache_home

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
    compiler = _compiler()
    flags = [*_FLAGS, *_target(architecture), *(f"-D{define}" for define in chosen.defines)]
    files = include_closure(folder, chosen.source)
    digest = sha256_json(
        {
            "source": chosen.source,
            "files": {file.relative_to(folder).as_posix(): sha256_file(file) for file in files},
            "flags": flags,
            "compiler": run_compiler([*compiler, "--version"], folder, chosen.source).stdout,
        }
    )
    finished = cache_home() / "build" / digest
    library = finished / f"lib{name}.so"
    if library.exists():
        return library
    finished.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=finished.parent, prefix=".building-") as temporary:
        made = Path(temporary) / "made"
        made.mkdir()
        result = run_compiler([*compiler, *flags, chosen.source, "-o", str(made / library.name)], folder, chosen.source)
        text = json.dumps([asdict(each) for each in resources(result.stderr)], indent=1)
        (made / "resources.json").write_text(text + "\n", encoding="utf-8")
        try:
            made.replace(finished)
        except OSError:
            # Another builder was first; its library has the same content. Anything else is a true failure.
            if not library.exists():
                raise
    return library


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


def _compiler() -> list[str]:
    words = shlex.split(os.environ.get("NVCC", "nvcc"))
    if not words or shutil.which(words[0]) is None:
        raise StateError(
            "no CUDA compiler",
            expected="nvcc or the compiler named by NVCC",
            found=words[0] if words else "an empty NVCC",
            next_step="install the CUDA toolkit (13.0) or set NVCC",
        )
    return words
