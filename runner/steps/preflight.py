"""Before anything is built: can this order be decided on this seat, and can this machine hold the run?"""

from __future__ import annotations

import shutil

from runner.check import check
from runner.errors import InputError, StateError
from runner.steps.state import Run

_FREE_BYTES = 200 << 20
"""A run's evidence, logs and engine caches on a small seat."""


def preflight(run: Run) -> Run:
    """Raises InputError for an order that cannot be decided and StateError for a full disk."""
    faults = check(run.order.order, run.manifest)
    if faults:
        raise InputError(
            f"order {run.order.order.id} cannot be decided on seat {run.manifest.name}",
            found="\n    ".join(["", *(fault.message for fault in faults)]),
            next_step="`runner check` shows the lines",
        )
    free = shutil.disk_usage(run.folder).free
    if free < _FREE_BYTES:
        raise StateError(
            "the disk is too full for a run",
            where=str(run.folder),
            expected=f"at least {_FREE_BYTES >> 20} MiB free",
            found=f"{free >> 20} MiB",
        )
    return run
