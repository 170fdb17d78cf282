"""The desk on a GPU: each job in a process of its own that sees the card; nothing of an engine."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.boots import new_record
from runner.digest import sha256_file
from runner.errors import SeatError
from runner.model.boot import NO_WEIGHTS, RankIdentity
from runner.paths import cache_home
from serve.adapters.offline import OfflineBoot, require_built
from serve.adapters.side import run_job
from serve.seat import BootRequest

JOBS = ("parity", "kernel-speed", "pressure", "sanitizer")
MODULE = "carve_kernels.desk.gpu.job"
TIMEOUT_SECONDS = 420.0
INCUMBENT = "exllamav3_ext.so"
"""Below ``CARVE_INCUMBENTS`` (default ``<cache>/incumbents``), in a folder called by its version."""
_BUILDS = {"": "candidate", "-watermark": "watermark", "-null-decode": "null-decode"}
_PASSED_ON = ("PYTHONPATH", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_VISIBLE_DEVICES")


def family_of(variant: str) -> str:
    """The workload a variant belongs to: ``dense``, ``lna`` (its kernel has another name), or the routed experts."""
    name = variant.partition("-")[0]
    return name if name in ("dense", "lna") else "routed"


def incumbent_library(version: str) -> Path:
    """The incumbent's compiled library on this host. Raises SeatError where it has not been put there."""
    folder = Path(os.environ.get("CARVE_INCUMBENTS", cache_home() / "incumbents"))
    path = folder / version / INCUMBENT
    if not path.is_file():
        raise SeatError(
            "an incumbent's library is not on this host",
            where=str(path),
            expected=f"exllamav3 {version}, compiled",
            next_step="import that version once on a host of the same torch and copy its extension there",
        )
    return path


@dataclass
class GpuDeskBoot(OfflineBoot):
    """``serve.seat.Boot`` on a card; the launches are the desk's own, so nothing is counted here."""

    def call(self, method: str, arguments: dict[str, Any] | None = None) -> list[Any]:
        """One of JOBS {"variant", "seed", ...}. Raises SeatError where it cannot run."""
        wanted = dict(arguments or {})
        variant = str(wanted.pop("variant", ""))
        self.require_job(JOBS, method, variant)
        request = {"job": method, "family": family_of(variant), "libraries": self._named(variant), **wanted}
        if "version" in wanted:
            request["incumbent"] = str(incumbent_library(str(wanted["version"])).resolve())
        began = time.monotonic()
        answer = job(request)
        self.words += f"{method} of {variant}: {time.monotonic() - began:.1f} s\n"
        return [answer]

    def _named(self, variant: str) -> dict[str, str]:
        """The job's names for the builds of ``variant``, and the desk's own libraries."""
        builds = {name: self.libraries.get(f"{variant}{ending}") for ending, name in _BUILDS.items()}
        own = {name: self.libraries.get(name) for name in ("ceilings", "planted")}
        return {name: str(path.resolve()) for name, path in (builds | own).items() if path}

    def switch(self, variant: str, ranks: tuple[int, ...] | None = None) -> None:
        """Every job names its variant."""


class GpuDeskSeat:
    """Gives GPU desk boots."""

    def boot(self, request: BootRequest) -> GpuDeskBoot:
        """Asks the card who it is; the label is ``real`` because a device answered. SeatError where none does."""
        require_built(request)
        started = time.monotonic()
        card = job({"job": "identify"})
        if not card["devices"]:
            raise SeatError("no GPU answers", expected="a device UUID", found=str(card))
        identity = RankIdentity(
            rank=0,
            pid=os.getpid(),
            libraries={name: sha256_file(path) for name, path in request.libraries.items()},
            trees={},
            weights=NO_WEIGHTS,
            devices=tuple(card["devices"]),
        )
        record = new_record(
            request.planned.id,
            label="real",
            pid=os.getpid(),
            ranks=(identity,),
            engine={"name": "torch", "version": str(card["torch"])},
            resolved={name: value for name, value in card.items() if name != "devices"},
            ready_ms=round((time.monotonic() - started) * 1e3),
        )
        return GpuDeskBoot(record, dict(request.libraries), started)


def job(request: Mapping[str, Any]) -> Any:
    """Run one job of the desk with what of this process's environment reaches a GPU. Raises SeatError."""
    environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    return run_job(MODULE, request, timeout=TIMEOUT_SECONDS, passed_on=environment)
