"""What every seat can do: start a boot and answer for it. Adapters implement this; nothing else starts an engine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from runner.model.boot import BootRecord
from runner.model.evidence import RankCounters
from runner.model.plan import PlannedBoot
from runner.model.seat import SeatManifest

STANDING = "standing"
"""Stands for the run of a boot that belongs to none."""


@dataclass(frozen=True)
class BootRequest:
    """One start of the engine as the plan wants it."""

    planned: PlannedBoot
    manifest: SeatManifest
    pack: Path
    """What is served: the standing pack or a recipe's product."""
    libraries: dict[str, Path]
    """Variant name to native library. In a knock-out boot the candidate's name maps to the knock-out library."""
    variant: str
    """Switched on at start."""
    allowed_declines: tuple[str, ...]
    """Typed reasons that strict 2 lets through."""
    folder: Path
    """Private folder of this boot (logs, temporary files, caches kept elsewhere); removed parts are the adapter's."""
    sandboxed: bool = True
    """Whether the engine is kept away from the rest of the machine, where that can be had."""
    run: str = STANDING
    """Name of the run, which a container bears; a boot outside a run is a standing one."""
    tree: Path | None = None
    """Packages of a patch order's product, which stand before the installed ones on the engine's import path."""
    witness: Path | None = None
    """The native witness, where it was built elsewhere and travelled with the libraries."""


class Boot(Protocol):
    """A running engine. Every method raises SeatError when the engine is gone."""

    record: BootRecord
    traces: Path | None
    """Folder into which the engine's profiler writes, as this machine names it; None where there is none."""
    base_url: str
    """``http://host:port``, or ``unix:/path`` of a socket; see :mod:`serve.connection`."""

    def call(self, method: str, arguments: dict[str, Any] | None = None) -> list[Any]:
        """``POST /carve/call``: one answer per rank, rank 0 first."""
        ...

    def counters(self) -> tuple[RankCounters, ...]:
        """Every rank's counters now."""
        ...

    def switch(self, variant: str, ranks: tuple[int, ...] | None = None) -> None:
        """Switch the variant on all ranks, or on some, while no request is in flight."""
        ...

    def logs(self) -> str:
        """Everything the engine has printed before now."""
        ...

    def stop(self) -> BootRecord:
        """End the boot, look for leftovers, and give the final record."""
        ...


class Seat(Protocol):
    """An adapter."""

    def boot(self, request: BootRequest) -> Boot:
        """Start and wait for readiness: ``/health``, one generated token, then counters that moved.

        Raises SeatError with the engine's own last words when it does not come up or refuses.
        """
        ...
