"""Before anything is built: the order can be decided on this seat, the disk holds the run, the engine is there."""

from __future__ import annotations

import shutil

from runner.check import check
from runner.errors import InputError, StateError
from runner.model.order import WorkOrder
from runner.model.seat import SeatManifest
from runner.steps.state import Run
from serve.install import ensure, is_locked

_FREE_BYTES = 200 << 20
"""A run's evidence, logs and engine caches on a small seat."""


def require_decidable(order: WorkOrder, manifest: SeatManifest) -> None:
    """Raises InputError with every fault of the order on this seat."""
    faults = check(order, manifest)
    if faults:
        raise InputError(
            f"order {order.id} cannot be decided on seat {manifest.name}",
            found="\n    ".join(["", *(fault.message for fault in faults)]),
            next_step="`runner check` shows the lines",
        )


def preflight(run: Run) -> Run:
    """Installs the seat's engine where the lock has it.

    Raises InputError for an order that cannot be decided, StateError for a full disk and SeatError where the engine
    cannot be installed.
    """
    require_decidable(run.order.order, run.manifest)
    free = shutil.disk_usage(run.folder).free
    if free < _FREE_BYTES:
        raise StateError(
            "the disk is too full for a run",
            where=str(run.folder),
            expected=f"at least {_FREE_BYTES >> 20} MiB free",
            found=f"{free >> 20} MiB",
        )
    if is_locked(run.manifest.distribution):
        ensure(run.progress.note)
    return run
