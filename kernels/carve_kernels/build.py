"""Builds a variant's shared library, once for each content of its sources, flags and compiler.

Every source is compiled four times into one library: the C ABI, and the kernels for AVX-512, AVX2 and the plain
processor, among which the library chooses when it is loaded. It needs a C++17 compiler (``CXX``, default ``g++``) and
nothing of torch, and brings no thread pool.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from carve_kernels.compiler import Workplace, build_once, compiler_words, read_sources, run_compiler
from carve_kernels.registry import sources_folder, variant

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


def build(name: str, folder: Path | None = None, source: str = "") -> Path:
    """The library of variant ``name``, built from ``folder`` (default: this checkout's ``kernels/cpu``) if need be.

    ``source`` is that of a variant which only an order knows. Returns ``<cache>/build/<digest>/lib<name>.so``. Two
    builders at once are safe: each works in its own folder and the finished library appears by one rename. Raises
    InputError with the compiler's own words where the source does not compile and StateError where there is no
    compiler.
    """
    chosen, folder = variant(name, source), (folder or sources_folder()).resolve()
    compiler = compiler_words("CXX", "g++", "C++", "install g++ (Debian: apt-get install g++)")
    defines = [f"-D{define}" for define in chosen.defines]
    library = f"lib{name}.so"
    sources = read_sources(folder, chosen.source)
    digest = sources.digest(
        compiler,
        flags=[*_COMMON, *defines, *_LINK],
        parts={part: list(flags) for part, flags in _PARTS.items()},
        library=library,
    )

    def make(place: Workplace) -> None:
        objects = {part: place.work / f"{part}.o" for part in _PARTS}

        def compile_part(part: str) -> None:
            names = [f"-DCARVE_{macro}=carve_{name}_{part}" for macro, name in _FUNCTIONS.items() if part != "entry"]
            arguments = [*_COMMON, *_PARTS[part], *defines, *names, "-c", chosen.source, "-o", str(objects[part])]
            run_compiler([*compiler, *arguments], sources, place, confine=True)

        with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
            for _ in pool.map(compile_part, _PARTS):
                pass
        linked = [*compiler, *_LINK, *map(str, objects.values()), "-o", str(place.finished / library)]
        run_compiler(linked, sources, place, confine=True)

    return build_once(sources, digest, library, make)
