"""Compiles the kernels to beat on a host with nvcc and torch: ``... SOURCES OUT`` leaves ``OUT/exllamav3_ext.so``.

``SOURCES`` is the folder ``exllamav3_ext`` of an unpacked exllamav3 wheel. Its sources are compiled as they are, with
its own flags, but only the instantiations that desk and seats use: dense K 3 and 6, routed K 2 and 3, codebook mcg. It
takes minutes less than the whole extension, which is what importing the package would compile.

The tables of the rest are filled with nulls by generated symbols, and exllamav3 refuses a call to an empty place. A
function that was left out answers 0 instead, which its caller may take for "declined, take the slower path". Every one
is named in ``OUT/absent.json``, and whoever loads the library says so (:func:`incumbents.load`).
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from torch.utils import cpp_extension

from carve_kernels.desk.gpu.incumbents import ABSENT, TABLE
from runner.errors import InputError

_ALWAYS = ("exl3_gemm", "exl3_gemv", "exl3_kernel_map", "exl3_devctx", "coop_autotune", "exl3_moe", "exl3_moe_coop")
_UNITS = (
    "exl3_comp_unit_3_cb1",
    "exl3_comp_unit_6_cb1",
    *(
        f"{kind}_k{bits}{end}"
        for bits in (2, 3)
        for kind, end in (("exl3_moe_inst", "_cb1"), ("exl3_moe_coop_inst", ""))
    ),
)
_OURS = re.compile(r"exl3|^tfp_|^_ZN5Graph")
"""Symbols of exllamav3 itself; those of torch and CUDA are found in their libraries."""
_BINDING = """#include <torch/extension.h>
{includes}
PYBIND11_MODULE(exllamav3_ext, m) {{ {definitions} }}
"""


def build(sources: Path, out: Path, architecture: str = "90") -> Path:
    """``OUT/exllamav3_ext.so``. Raises InputError with the compiler's own words."""
    quant = sources / "quant"
    wanted = [quant / f"{name}.cu" for name in _ALWAYS] + [quant / "comp_units" / f"{name}.cu" for name in _UNITS]
    files = [path for path in wanted if path.exists()]  # the older version has no cooperative kernel
    out.mkdir(parents=True, exist_ok=True)
    binding = out / "binding.cu"
    binding.write_text(_binding(quant), encoding="utf-8")
    includes = [*cpp_extension.include_paths("cuda"), sysconfig.get_paths()["include"], str(sources)]
    flags = [
        "-std=c++20",
        "-O3",
        "--use_fast_math",
        "-Xcompiler",
        "-fPIC",
        f"-gencode=arch=compute_{architecture},code=sm_{architecture}",
    ]
    flags += cpp_extension.COMMON_NVCC_FLAGS
    flags += ["-DTORCH_API_INCLUDE_EXTENSION_H", "-D_GLIBCXX_USE_CXX11_ABI=1", *(f"-I{path}" for path in includes)]
    objects = [out / f"{path.stem}.o" for path in (*files, binding)]
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        jobs = [
            pool.submit(_run, ["nvcc", *flags, "-c", str(source), "-o", str(target)])
            for source, target in zip((*files, binding), objects, strict=True)
        ]
        for job in jobs:
            job.result()
    missing = left_out(_run(["nm", *map(str, objects)]))
    stubs = out / "absent.s"
    stubs.write_text(absent(missing), encoding="utf-8")
    (out / ABSENT).write_text(json.dumps(missing, indent=1) + "\n", encoding="utf-8")
    library = out / "exllamav3_ext.so"
    folders = cpp_extension.library_paths("cuda")
    libraries = ["-lc10", "-lc10_cuda", "-ltorch", "-ltorch_cpu", "-ltorch_cuda", "-ltorch_python", "-lcudart"]
    _run(
        [
            "g++",
            "-shared",
            "-Wl,-z,lazy",
            *map(str, objects),
            str(stubs),
            *(f"-L{path}" for path in folders),
            *libraries,
            "-o",
            str(library),
        ]
    )
    return library


def _binding(quant: Path) -> str:
    names = ["exl3_gemm", "exl3_mgemm", "exl3_moe", "exl3_moe_max_concurrency"]
    headers = ["exl3_gemm.cuh", "exl3_moe.cuh"]
    if (quant / "exl3_moe_coop.cuh").exists():
        names, headers = [*names, "exl3_moe_coop"], [*headers, "exl3_moe_coop.cuh"]
    return _BINDING.format(
        includes="\n".join(f'#include "quant/{name}"' for name in headers),
        definitions=" ".join(f'm.def("{name}", &{name});' for name in names),
    )


def left_out(symbols: str) -> list[str]:
    """Every symbol of exllamav3 that ``nm`` lists as undefined."""
    lines = [line.split() for line in symbols.splitlines()]
    defined = {words[-1] for words in lines if len(words) == 3}
    missing = {words[-1] for words in lines if len(words) == 2 and words[0] == "U"} - defined
    return sorted(filter(_OURS.search, missing))


def absent(names: Sequence[str]) -> str:
    """Assembly for symbols that were left out: nulls for a table, a function giving 0."""
    text = []
    for name in names:
        if name.startswith(TABLE):
            text += [".data", f".globl {name}", f"{name}: .zero 4096"]
        else:
            text += [".text", f".globl {name}", f"{name}: xorl %eax, %eax", "ret"]
    return "\n".join([*text, '.section .note.GNU-stack,"",@progbits', ""])


def _run(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise InputError("an incumbent does not compile", where=command[-1], found=done.stderr[-3000:])
    return done.stdout


if __name__ == "__main__":
    sys.stdout.write(f"{build(Path(sys.argv[1]), Path(sys.argv[2]))}\n")
