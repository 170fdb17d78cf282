"""Builds a variant's shared library, once for each content of its sources, flags and compiler.

Every source is compiled four times into one library: the C ABI, and the kernels for AVX-512, AVX2 and the plain
processor, among which the library chooses when it is loaded. It needs a C++17 compiler (``CXX``, default ``g++``) and
nothing of torch, and brings no thread pool.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from carve_kernels.registry import sources_folder, variant
from runner.digest import sha256_file, sha256_json
from runner.errors import InputError, StateError
from runner.paths import cache_home
from runner.sandbox import Reach, available, confined

_COMMON = (
    *("-std=c++17", "-O3", "-fPIC", "-fvisibility=hidden", "-fno-math-errno", "-fno-trapping-math"),
    *("-Wall", "-Wextra", "-Werror", "-Wno-error=deprecated-declarations"),
    # GCC 12 calls the deliberately undefined operands inside its own AVX-512 headers uninitialised (GCC bug 105593).
    *("-Wno-uninitialized", "-Wno-maybe-uninitialized"),
)
_AVX2 = ("-mavx2", "-mfma", "-mf16c")
_PARTS: dict[str, tuple[str, ...]] = {
    "entry": ("-DCARVE_ENTRY",),
    "avx512": (
        *_AVX2,
        *("-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mavx512vbmi", "-mprefer-vector-width=512"),
    ),
    "avx2": _AVX2,
    "scalar": (),
}
_LINK = ("-shared", "-static-libgcc", "-static-libstdc++", "-Wl,--exclude-libs,ALL", "-Wl,-z,defs")
_FUNCTIONS = {"FORWARD": "moe", "LINEAR": "linear", "DECODE": "decode"}
"""What a part's functions are called: macro of the source to ``carve_<name>_<part>``."""
_INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


def build(name: str, folder: Path | None = None, source: str = "") -> Path:
    """The library of variant ``name``, built from ``folder`` (default: this checkout's ``kernels/cpu``) if need be.

    ``source`` is that of a variant which only an order knows. Returns ``<cache>/build/<digest>/lib<name>.so``. Two
    builders at once are safe: each works in its own folder and the finished library appears by one rename. Raises
    InputError with the compiler's own words where the source does not compile and StateError where there is no
    compiler.
    """
    chosen, folder = variant(name, source), (folder or sources_folder()).resolve()
    compiler = _compiler()
    defines = [f"-D{define}" for define in chosen.defines]
    digest = _digest(folder, chosen.source, [*_COMMON, *defines, *_LINK], compiler)
    library = cache_home() / "build" / digest / f"lib{name}.so"
    if library.exists():
        return library
    library.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=library.parent, prefix=".building-") as temporary:
        objects = {part: Path(temporary) / f"{part}.o" for part in _PARTS}

        def compile_part(part: str) -> None:
            names = [f"-DCARVE_{macro}=carve_{name}_{part}" for macro, name in _FUNCTIONS.items() if part != "entry"]
            arguments = [*_COMMON, *_PARTS[part], *defines, *names, "-c", chosen.source, "-o", str(objects[part])]
            run_compiler([*compiler, *arguments], folder, chosen.source, Path(temporary))

        with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
            for _ in pool.map(compile_part, _PARTS):
                pass
        finished = Path(temporary) / library.name
        run_compiler(
            [*compiler, *_LINK, *map(str, objects.values()), "-o", str(finished)],
            folder,
            chosen.source,
            Path(temporary),
        )
        finished.replace(library)
    return library


def include_closure(folder: Path, source: str) -> list[Path]:
    """``source`` and every file it includes by quotes, directly or not; InputError where one is missing."""
    found: dict[Path, None] = {}
    waiting = [(folder / source).resolve()]
    while waiting:
        file = waiting.pop()
        if file in found:
            continue
        if not file.is_relative_to(folder) or not file.is_file():
            raise InputError("kernel source is missing", where=str(file), expected=f"a file below {folder}")
        found[file] = None
        waiting.extend((file.parent / name).resolve() for name in _INCLUDE.findall(file.read_text(encoding="utf-8")))
    return sorted(found)


def _digest(folder: Path, source: str, flags: list[str], compiler: list[str]) -> str:
    files = include_closure(folder, source)
    return sha256_json(
        {
            "source": source,
            "files": {file.relative_to(folder).as_posix(): sha256_file(file) for file in files},
            "flags": flags,
            "parts": {part: list(part_flags) for part, part_flags in _PARTS.items()},
            "compiler": run_compiler([*compiler, "--version"], folder, source).stdout,
        }
    )


def _compiler() -> list[str]:
    words = shlex.split(os.environ.get("CXX", "g++"))
    if not words or shutil.which(words[0]) is None:
        raise StateError(
            "no C++ compiler",
            expected="g++ or the compiler named by CXX",
            found=words[0] if words else "an empty CXX",
            next_step="install g++ (Debian: apt-get install g++) or set CXX",
        )
    return words


def run_compiler(
    command: Sequence[str], folder: Path, source: str, writes: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """The command's result; InputError with its own words where it fails.

    With ``writes`` it compiles a candidate's source, which may include whatever it can reach: so it reaches that
    folder, the sources and the compiler alone, where there is a sandbox.
    """
    words = list(command)
    if writes is not None and available().tool != "none":
        words = confined(words, Reach(reads=(folder,), writes=(writes,), temporary=False), folder)
    environment = {"PATH": os.environ.get("PATH", os.defpath)}
    result = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if result.returncode:
        raise InputError(
            "kernel does not compile",
            where=str(folder / source),
            expected=f"exit 0 of: {shlex.join(command)}",
            found=result.stderr.strip() or f"exit {result.returncode}",
            next_step="correct the source; the compiler's own words are above",
        )
    return result
