"""Which workload a kernel family brings to the desk."""

from __future__ import annotations

from pathlib import Path

import torch

from carve_kernels.desk.gpu.fans import FanWorkload
from carve_kernels.desk.gpu.routed import RoutedWorkload
from carve_kernels.desk.gpu.workload import Workload
from runner.errors import SeatError

ROUTED = {"routed": "routed_experts", "lna": "lna_"}
"""Families of routed experts, and what their kernels are called."""


def workload(family: str, library: Path, device: torch.device) -> Workload:
    """The workload of ``family`` around one built library. Raises SeatError for another name."""
    if family == "dense":
        return FanWorkload(library, device)
    if family in ROUTED:
        return RoutedWorkload(library, device, ROUTED[family])
    raise SeatError("the desk knows no such kernel family", expected=", ".join(["dense", *ROUTED]), found=family)
