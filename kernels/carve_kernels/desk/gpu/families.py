"""Which workload a kernel family brings to the desk."""

from __future__ import annotations

from pathlib import Path

import torch

from carve_kernels.desk.gpu.fans import FanWorkload
from carve_kernels.desk.gpu.workload import Workload
from runner.errors import SeatError

FAMILIES = ("dense",)


def workload(family: str, library: Path, device: torch.device) -> Workload:
    """The workload of ``family`` around one built library. Raises SeatError for another name."""
    if family == "dense":
        return FanWorkload(library, device)
    raise SeatError("the desk knows no such kernel family", expected=", ".join(FAMILIES), found=family)
