"""The native witness, built once per source, flags and compiler: for processors by g++, for GPUs by nvcc.

``python -m serve.witness.build`` builds both.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from carve_kernels.compiler import Workplace, build_once, compiler_words, read_sources, run_compiler
from carve_kernels.cuda.build import ARCHITECTURES

from runner.paths import source_root


@dataclass(frozen=True)
class _Kind:
    source: str
    variable: str
    """The environment variable that names another compiler."""
    compiler: str
    language: str
    flags: tuple[str, ...]
    install: str


_CODE = tuple(
    f"-gencode=arch=compute_{name},code=sm_{name}" for name in (one.removeprefix("sm_") for one in ARCHITECTURES)
)
_PROCESSOR = _Kind(
    "witness.cpp",
    "CXX",
    "g++",
    "C++",
    ("-std=c++17", "-O2", "-fPIC", "-shared", "-fvisibility=default", "-Wall", "-Wextra", "-Werror"),
    "install g++ (Debian: apt-get install g++)",
)
_GPU = _Kind(
    "count.cu",
    "NVCC",
    "nvcc",
    "CUDA",
    (
        *("-std=c++17", "-O2", "-shared", "-cudart", "static", "-Xcompiler", "-fPIC,-fvisibility=hidden,-Wall,-Wextra"),
        *_CODE,
    ),
    "install the CUDA toolkit (13.0)",
)


def witness_library(*, gpu: bool = False) -> Path:
    """Path of the built witness, built where there is none of these sources, flags and compiler.

    StateError where there is no compiler, InputError with its words where it refuses the source.
    """
    kind = _GPU if gpu else _PROCESSOR
    compiler = compiler_words(kind.variable, kind.compiler, kind.language, kind.install)
    sources = read_sources(source_root().resolve(), f"serve/witness/native/{kind.source}")
    library = f"libcarve-witness-{Path(kind.source).stem}.so"

    def make(place: Workplace) -> None:
        run_compiler([*compiler, *kind.flags, sources.source, "-o", str(place.finished / library)], sources, place)

    return build_once(sources, sources.digest(compiler, flags=kind.flags), library, make)


if __name__ == "__main__":
    for each in (False, True):
        print(witness_library(gpu=each))
