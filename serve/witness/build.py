"""The native witness, built once per source, flags and compiler."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from runner.digest import sha256_bytes, sha256_json
from runner.errors import StateError
from runner.paths import cache_home, source_root

FLAGS = ("-std=c++17", "-O2", "-fPIC", "-shared", "-fvisibility=default", "-Wall", "-Wextra", "-Werror")


def witness_library() -> Path:
    """Path of the built witness, building it when its key is new. Raises StateError when the compiler fails."""
    compiler = os.environ.get("CXX", "g++")
    source = Path(__file__).parent / "native/witness.cpp"
    header = source_root() / "kernels/cpu"
    found = shutil.which(compiler)
    if found is None:
        raise StateError(
            "no C++ compiler for the witness",
            where=str(source),
            expected="g++ or the compiler named in CXX",
            found="none on PATH",
            next_step="install g++ (Debian package g++)",
        )
    key = sha256_json([*FLAGS, found, sha256_bytes(source.read_bytes()), sha256_bytes((header / "abi.h").read_bytes())])
    target = cache_home() / "native" / f"witness-{key[:16]}.so"
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        partial = Path(folder) / "witness.so"
        command = [found, *FLAGS, f"-I{header}", str(source), "-o", str(partial)]
        outcome = subprocess.run(command, capture_output=True, text=True, check=False)
        if outcome.returncode != 0:
            raise StateError("the witness does not compile", where=str(source), found=outcome.stderr.strip())
        partial.replace(target)
    return target
