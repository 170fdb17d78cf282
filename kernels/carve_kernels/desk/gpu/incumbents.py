"""The kernels to beat: exllamav3's compiled extension, loaded by file, one version a process.

The extension is built once on a host of the same torch (importing the package does it) and carried; its digest goes
into the evidence.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import torch

from carve_kernels.desk.gpu.material import Fan
from carve_kernels.desk.gpu.moe import Layer
from carve_kernels.exl3.codebook import Codebook
from runner.errors import SeatError

ABSENT = "absent.json"
"""Beside a library of :mod:`build_incumbent`: the symbols that were left out of it."""
TABLE = "tfp_"
"""How tables of launches begin; exllamav3 itself refuses a call to an empty place of one."""
_ASKED_FIRST = "try_launch"
"""Functions that take the faster path or answer 0."""


def without(path: Path) -> tuple[str, ...]:
    """Functions that the library in ``path`` lacks and answers 0 for, by the list beside it.

    Raises SeatError where one of them is asked before a slower path is taken: such a library is no incumbent.
    """
    listed = path.parent / ABSENT
    names = json.loads(listed.read_bytes()) if listed.is_file() else []
    functions = tuple(name for name in names if not name.startswith(TABLE))
    if slower := [name for name in functions if _ASKED_FIRST in name]:
        raise SeatError(
            "an incumbent's library lacks a fast path",
            where=str(path),
            expected=f"none of {_ASKED_FIRST} in {ABSENT}",
            found=", ".join(slower),
            next_step="build it anew with carve_kernels.desk.gpu.build_incumbent",
        )
    return functions


def load(path: Path) -> ModuleType:
    """The extension module in ``path``; what was left out of it is told on standard error.

    Raises SeatError where it does not load or lacks a fast path.
    """
    if functions := without(path):
        sys.stderr.write(f"{path}: built without {', '.join(functions)}\n")
    sys.setdlopenflags(os.RTLD_LAZY | os.RTLD_GLOBAL)  # kernels that the desk does not time were left out
    spec = importlib.util.spec_from_file_location("exllamav3_ext", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise SeatError("an incumbent's library is missing", where=str(path), expected="exllamav3_ext.so")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except ImportError as error:
        raise SeatError("an incumbent's library does not load", where=str(path), found=str(error)) from error
    return module


Dense = Callable[[], list[torch.Tensor]]
COOPERATIVE_SLOTS = 256
"""More pairs of row and expert ``exl3_moe_coop`` does not take."""


def _is_later(module: ModuleType) -> bool:
    """1.6 and later: more arguments, and a cooperative kernel."""
    return hasattr(module, "exl3_moe_coop")


def dense(module: ModuleType, fan: Fan, x: torch.Tensor) -> dict[str, Dense]:
    """``exl3_gemm`` launched once a part, and ``exl3_mgemm`` once for all; float32 outputs, scratch made beforehand."""
    rows, mcg, mul1 = x.shape[0], fan.book is Codebook.MCG, fan.book is Codebook.MUL1
    singles, scratch = fan.outputs(rows), torch.empty_like(x)

    def gemm() -> list[torch.Tensor]:
        for part, out in zip(fan.parts, singles, strict=True):
            module.exl3_gemm(x, part.trellis, out, part.suh, scratch, part.svh, -1, mcg, mul1, 0)
        return singles

    grouped, device = fan.outputs(rows), x.device
    tables = [
        torch.tensor([getattr(part, name).data_ptr() for part in fan.parts], dtype=torch.long, device=device)
        for name in ("trellis", "suh", "svh")
    ]
    widths = torch.tensor([part.out_features for part in fan.parts], dtype=torch.int32, device=device)
    places = torch.tensor([out.data_ptr() for out in grouped], dtype=torch.long, device=device)
    index = torch.arange(len(fan.parts), dtype=torch.long, device=device).unsqueeze(0)
    widest = torch.empty(1, rows, int(widths.max()), device=device)
    slabs = torch.empty(len(fan.parts), rows, fan.in_features, dtype=torch.half, device=device)
    batch, bits = x.unsqueeze(0), fan.parts[0].bits
    rest = (None, None, 0) if _is_later(module) else ()

    def mgemm() -> list[torch.Tensor]:
        arguments = (batch, tables[0], widest, tables[1], slabs, tables[2], index, None, bits, -1, mcg, mul1)
        module.exl3_mgemm(*arguments, -1, -1, 0, 1, widths, places, *rest)
        return grouped

    return {"exl3_gemm": gemm, "exl3_mgemm": mgemm}


@dataclass(frozen=True)
class Batch:
    """Rows with their routes: half ``x [rows, hidden]``, int32 ``ids`` and float32 ``weights [rows, topk]``."""

    x: torch.Tensor
    ids: torch.Tensor
    weights: torch.Tensor


def routed(module: ModuleType, layer: Layer, bits: int, batch: Batch, *, limit: float) -> dict[str, Dense]:
    """``exl3_moe`` and, where the version has it, ``exl3_moe_coop``: the kernels alone, sorting done beforehand.

    Both add to their float32 output, which the caller zeroes where it matters.
    """
    x, ids, weights = batch.x, batch.ids, batch.weights
    (rows, hidden), topk, device = x.shape, ids.shape[1], x.device
    flat = ids.flatten().long()
    order = flat.argsort()
    tokens = torch.div(order, topk, rounding_mode="floor")
    counts = torch.bincount(flat, minlength=layer.experts + 1)
    sorted_weights = weights.flatten()[order].half()
    pointers = [table for tables in layer.tables for table in tables]
    concurrency, rows_a_tile = module.exl3_moe_max_concurrency(device.index or 0), 32
    wide = [torch.empty(concurrency, rows_a_tile, hidden, dtype=torch.half, device=device) for _ in range(2)]
    narrow = [
        torch.empty(concurrency, rows_a_tile, layer.intermediate, dtype=torch.half, device=device) for _ in range(2)
    ]
    sum_plain = torch.zeros(rows, hidden, device=device)
    later = _is_later(module)
    rest = (None, None, 1, rows_a_tile, 16) if later else ()
    books = (True, False) * 3

    def plain() -> list[torch.Tensor]:
        given = (x, sum_plain, counts, tokens, sorted_weights, *wide, *narrow, 0, bits, bits, bits, *pointers, *books)
        module.exl3_moe(*given, limit, -1, *rest)
        return [sum_plain]

    found: dict[str, Dense] = {"exl3_moe": plain}
    slots = rows * topk
    if not later or slots > COOPERATIVE_SLOTS:
        return found
    halves = [torch.empty(slots, hidden, dtype=torch.half, device=device) for _ in range(2)]
    floats = [torch.empty(slots, layer.intermediate, device=device) for _ in range(2)]
    activation = torch.empty(slots, layer.intermediate, dtype=torch.half, device=device)
    down = torch.empty(slots, hidden, device=device)
    control = slots * (layer.intermediate // 128) + rows * (hidden // 128) + 2 * slots + 67
    counters = torch.zeros(control, dtype=torch.int, device=device)
    sum_coop = torch.zeros(rows, hidden, device=device)
    long_ids, half_weights = ids.long(), weights.half()

    def cooperative() -> list[torch.Tensor]:
        head = (x, long_ids, half_weights, -1, -1, hidden, *pointers, None, None, None, *(float(bits),) * 3)
        tail = (*halves, *floats, activation, down, counters, sum_coop, None, None)
        module.exl3_moe_coop(*head, True, False, 0, limit, True, *tail)
        return [sum_coop]

    return found | {"exl3_moe_coop": cooperative}
