"""Registers and spills of every GPU kernel against the committed table: ``python -m carve_kernels.cuda.resources``.

``--write`` makes ``kernels/cuda/resources.yaml`` anew. Built are the candidates in full for the tuned architecture, and
one instantiation of each for the others; ``--full`` builds everything everywhere. A kernel that needs more registers or
spills more than the table says fails, and so does a kernel or a build that the table does not know.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import yaml

from carve_kernels.cuda.build import ARCHITECTURES, Resources, build
from carve_kernels.cuda.registry import VARIANTS, sources_folder
from carve_kernels.registry import Role
from runner.files import write_whole

TABLE = "cuda/resources.yaml"
TUNED = "sm_90a"
BRIEF = "-brief"
"""Ending of the variants that hold one instantiation."""

WATCHED_TRIALS = ("lna2-paired-cluster16",)
"""Trial designs whose registers are kept as well."""

Row = dict[str, int]
Table = dict[str, dict[str, Row]]
"""``<variant> <architecture>`` to kernel to its figures."""

_SHORTEST = 5
_ARGUMENT = re.compile(r"L(?:[a-z]|N[^L]*?E)(\d+)E")


def wanted(*, full: bool) -> Iterator[tuple[str, str]]:
    """(variant, architecture) of everything that is built."""
    yield from ((name, TUNED) for name in WATCHED_TRIALS)
    if full:
        yield from ((name, architecture) for architecture in ARCHITECTURES for name in VARIANTS)
        return
    for name, variant in VARIANTS.items():
        if variant.role is Role.CANDIDATE:
            yield name, TUNED
        elif name.endswith(BRIEF):
            yield from ((name, architecture) for architecture in ARCHITECTURES if architecture != TUNED)


def measured(pairs: Iterator[tuple[str, str]]) -> Table:
    """Builds, one on each processor, and reads what ptxas said."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(pool.map(_built, pairs))


def _built(pair: tuple[str, str]) -> tuple[str, dict[str, Row]]:
    name, architecture = pair
    sys.stderr.write(f"nvcc {name} {architecture}\n")
    told = json.loads((build(name, architecture).parent / "resources.json").read_bytes())
    return f"{name} {architecture}", {readable(one.kernel): _row(one) for one in (Resources(**row) for row in told)}


def _row(one: Resources) -> Row:
    return {"registers": one.registers, "spill_bytes": one.spill_store_bytes + one.spill_load_bytes}


def readable(mangled: str) -> str:
    """``dense_kernel<6,1,2>`` of a mangled name: the kernel and its numbers. Other names stay as they are."""
    found = mangled
    for length in re.finditer(r"\d+", mangled):
        # A hash of an unnamed namespace may end in digits just before the length; the last name that fits is the one.
        for start in range(length.start(), length.end()):
            count = int(mangled[start : length.end()])
            name, after = mangled[length.end() :][:count], mangled[length.end() + count :]
            if len(name) == count > _SHORTEST and name.isidentifier() and after.startswith("IL"):
                found = f"{name}<{','.join(_ARGUMENT.findall(after.partition('EE')[0] + 'E'))}>"
    return found


def regressions(recorded: Table, found: Table) -> list[str]:
    """What is worse than the table, or not in it."""
    worse = []
    for place, kernels in sorted(found.items()):
        if place not in recorded:
            worse.append(f"{place} is not in the table")
            continue
        known = recorded[place]
        for kernel, row in sorted(kernels.items()):
            if kernel not in known:
                worse.append(f"{place}: {kernel} is not in the table")
                continue
            worse += [
                f"{place}: {kernel} has {value} {figure}, recorded are {known[kernel][figure]}"
                for figure, value in row.items()
                if value > known[kernel][figure]
            ]
    return worse


def main(arguments: Sequence[str] | None = None) -> int:
    """0, or 1 with every regression on standard error."""
    parser = argparse.ArgumentParser(prog="python -m carve_kernels.cuda.resources", description=__doc__)
    parser.add_argument("--write", action="store_true", help="make the table anew")
    parser.add_argument("--full", action="store_true", help="every variant for every architecture")
    given = parser.parse_args(arguments)
    path = sources_folder() / TABLE
    found = measured(wanted(full=given.full))
    if given.write:
        _write(path, found)
        return 0
    recorded: Table = yaml.safe_load(path.read_text(encoding="utf-8"))
    worse = regressions(recorded, found)
    sys.stderr.write("".join(f"{line}\n" for line in worse))
    return 1 if worse else 0


def _write(path: Path, table: Table) -> None:
    text = yaml.safe_dump(table, default_flow_style=None, width=120, sort_keys=True)
    head = "# Registers and spills by ptxas (CUDA 13.0). Made by `python -m carve_kernels.cuda.resources --write`.\n"
    write_whole(path, (head + text).encode())


if __name__ == "__main__":
    sys.exit(main())
