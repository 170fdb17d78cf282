"""The native witness, built once per source, flags and compiler: for processors by g++, for GPUs by nvcc.

``python -m serve.witness.build`` builds both.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from carve_kernels.cuda.build import ARCHITECTURES

from runner.digest import sha256_bytes, sha256_json
from runner.errors import StateError
from runner.paths import cache_home, source_root


@dataclass(frozen=True)
class _Kind:
    source: str
    variable: str
    """The environment variable that names another compiler."""
    compiler: str
    flags: tuple[str, ...]
    next_step: str


_CODE = tuple(
    f"-gencode=arch=compute_{name},code=sm_{name}" for name in (one.removeprefix("sm_") for one in ARCHITECTURES)
)
_PROCESSOR = _Kind(
    "witness.cpp",
    "CXX",
    "g++",
    ("-std=c++17", "-O2", "-fPIC", "-shared", "-fvisibility=default", "-Wall", "-Wextra", "-Werror"),
    "install g++ (Debian package g++)",
)
_GPU = _Kind(
    "count.cu",
    "NVCC",
    "nvcc",
    (
        *("-std=c++17", "-O2", "-shared", "-cudart", "static", "-Xcompiler", "-fPIC,-fvisibility=hidden,-Wall,-Wextra"),
        *_CODE,
    ),
    "install the CUDA toolkit (13.0) or set NVCC",
)


def witness_library(*, gpu: bool = False) -> Path:
    """Path of the built witness, building it when its key is new. Raises StateError when the compiler fails."""
    kind = _GPU if gpu else _PROCESSOR
    words = shlex.split(os.environ.get(kind.variable, kind.compiler))
    source = Path(__file__).parent / "native" / kind.source
    header = source_root() / "kernels/cpu"
    found = shutil.which(words[0]) if words else None
    if found is None:
        raise StateError(
            "no compiler for the witness",
            where=str(source),
            expected=f"{kind.compiler} or the compiler named in {kind.variable}",
            found="none on PATH",
            next_step=kind.next_step,
        )
    command = [found, *words[1:], *kind.flags]
    key = sha256_json([*command, sha256_bytes(source.read_bytes()), sha256_bytes((header / "abi.h").read_bytes())])
    target = cache_home() / "native" / f"{source.stem}-{key[:16]}.so"
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        partial = Path(folder) / "witness.so"
        whole = [*command, f"-I{header}", str(source), "-o", str(partial)]
        outcome = subprocess.run(whole, capture_output=True, text=True, check=False)
        if outcome.returncode != 0:
            raise StateError("the witness does not compile", where=str(source), found=outcome.stderr.strip())
        partial.replace(target)
    return target


if __name__ == "__main__":
    for each in (False, True):
        print(witness_library(gpu=each))
