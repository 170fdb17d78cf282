"""What can be known of the routed experts' GPU library without a GPU: its structures, its plans, its refusals."""

from __future__ import annotations

import ctypes
import json
import subprocess
from pathlib import Path

import pytest
from carve_kernels.abi import CLayerCounters
from carve_kernels.cuda.build import build
from carve_kernels.cuda.library import COUNTERS_BYTES, CExperts, Device, Library, MoeCall, Plan, counts
from carve_kernels.cuda.registry import sources_folder
from carve_kernels.cuda.resources import readable

from runner.errors import InputError

H200 = Device(processors=132, shared_per_processor=233472, shared_per_block=232448, shared_reserved=1024)
SMALL = Device(processors=34, shared_per_processor=102400, shared_per_block=101376, shared_reserved=1024)
"""A card of compute capability 12.0 with 34 processors."""


def call(*, rows: int = 4, hidden: int = 4096, intermediate: int = 256, bits: int = 2, **changes: int) -> MoeCall:
    made = MoeCall(1, 0, rows, hidden, intermediate, changes.pop("topk", 6), changes.pop("experts", 256), 10.0, 1, 0)
    for name in ("gate", "up", "down"):
        setattr(made, name, CExperts(bits=bits, codebook=changes.pop(f"{name}_codebook", 1)))
    for name, value in changes.items():
        setattr(made, name, value)
    return made


@pytest.fixture(scope="module")
def library() -> Library:
    return Library(build("lna2-brief"))


def test_structures_are_those_of_the_header(tmp_path: Path) -> None:
    lines = ['#include "abi.h"', "#include <stddef.h>"]
    for name, structure in (
        ("carve_cuda_experts", CExperts),
        ("carve_cuda_moe_call", MoeCall),
        ("carve_cuda_device", Device),
        ("carve_cuda_plan", Plan),
    ):
        lines.append(f'_Static_assert(sizeof({name}) == {ctypes.sizeof(structure)}, "{name}");')
        for field, *_ in structure._fields_:
            offset = getattr(structure, field).offset
            lines.append(f'_Static_assert(offsetof({name}, {field}) == {offset}, "{name}.{field}");')
    source = tmp_path / "sizes.c"
    source.write_text("\n".join(lines))
    subprocess.run(["gcc", "-fsyntax-only", f"-I{sources_folder() / 'cuda'}", str(source)], check=True)


@pytest.mark.parametrize(("rows", "blocks"), [(1, 132), (2, 132), (3, 264), (8, 264), (9, 264), (32, 264)])
def test_a_plan_fills_the_device(library: Library, rows: int, blocks: int) -> None:
    declined, plan = library.plan(call(rows=rows), H200)
    assert (declined, plan.blocks) == ("", blocks)
    assert plan.chunks == blocks * (2 if rows > 16 else 1)
    assert plan.shared_bytes * (blocks // 132) <= H200.shared_per_processor - H200.shared_reserved * (blocks // 132)
    assert plan.fragments >= 64


@pytest.mark.parametrize("bits", [2, 3])
@pytest.mark.parametrize("rows", [1, 8, 16, 32])
def test_a_small_card_has_a_plan(library: Library, bits: int, rows: int) -> None:
    declined, plan = library.plan(call(rows=rows, bits=bits), SMALL)
    assert (declined, plan.blocks) == ("", 34)
    assert plan.shared_bytes <= SMALL.shared_per_block


def test_scratch_follows_its_formula(library: Library) -> None:
    _, plan = library.plan(call(rows=4), H200)
    control = 32 * 8 + 32 * 256 * 4 + 65536 * 8
    pairs = 4 * 6
    partial = (pairs * 2 + plan.chunks * 4) * 256 * 4
    assert plan.scratch_bytes == control + partial + pairs * 4096 * 4
    assert library.plan(call(rows=4, experts=3), H200)[1].scratch_bytes < plan.scratch_bytes


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"rows": 33}, "rows-above-limit"),
        ({"hidden": 4100}, "shape"),
        ({"intermediate": 64}, "shape"),
        ({"topk": 17}, "shape"),
        ({"experts": 1025}, "shape"),
        ({"bits": 9}, "bits"),
        ({"up_codebook": 2}, "codebook"),
    ],
)
def test_declines_are_typed(library: Library, changes: dict[str, int], reason: str) -> None:
    assert library.plan(call(**changes), H200)[0] == reason


@pytest.mark.parametrize("changes", [{"abi_version": 0}, {"x_type": 0}, {"out_type": 3}, {"layer": 256}, {"rows": 0}])
def test_a_call_that_contradicts_itself_is_an_error(library: Library, changes: dict[str, int]) -> None:
    with pytest.raises(InputError, match="contradicts itself"):
        library.plan(call(**changes), H200)


def test_a_device_with_too_little_shared_memory_is_declined(library: Library) -> None:
    tiny = Device(processors=8, shared_per_processor=49152, shared_per_block=49152, shared_reserved=1024)
    assert library.plan(call(), tiny)[0] == "processor"


def test_a_kernel_for_eight_rows_does_not_spill_at_two_bits(library: Library) -> None:
    told = json.loads((library.path.parent / "resources.json").read_text(encoding="utf-8"))
    spills = {readable(one["kernel"]): one["spill_store_bytes"] + one["spill_load_bytes"] for one in told}
    assert [spills[f"routed_experts<2,1,1,{few}>"] for few in (0, 1)] == [0, 0]


def test_counts_are_read_from_a_copy() -> None:
    table = (CLayerCounters * 256)()
    table[7].launches, table[7].rows[4] = 3, 3
    (counted,) = counts(bytes(table))
    assert (counted.layer, counted.launches, counted.rows) == (7, 3, ((4, 3),))
    with pytest.raises(InputError, match="not a copy"):
        counts(bytes(COUNTERS_BYTES - 1))
