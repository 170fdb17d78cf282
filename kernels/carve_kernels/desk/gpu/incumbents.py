"""The kernels to beat: exllamav3's compiled extension, loaded by file, one version a process.

The extension is built once on a host of the same torch (importing the package does it) and carried; its digest goes
into the evidence.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import torch

from carve_kernels.desk.gpu.material import Fan
from carve_kernels.exl3.codebook import Codebook
from runner.errors import SeatError


def load(path: Path) -> ModuleType:
    """The extension module in ``path``. Raises SeatError where it does not load."""
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

    def mgemm() -> list[torch.Tensor]:
        arguments = (batch, tables[0], widest, tables[1], slabs, tables[2], index, None, bits, -1, mcg, mul1)
        module.exl3_mgemm(*arguments, -1, -1, 0, 1, widths, places)
        return grouped

    return {"exl3_gemm": gemm, "exl3_mgemm": mgemm}
