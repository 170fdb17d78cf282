"""A seat outside a run: the incumbent, booted and stopped."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from runner.model.plan import PlannedBoot
from runner.paths import source_root
from runner.steps.build import build_libraries
from runner.steps.seats import load_manifest, seat_of
from serve.seat import Boot, BootRequest


@contextmanager
def standing(name: str) -> Iterator[Boot]:
    """The incumbent of seat ``name``, until the block ends. Raises InputError, SeatError."""
    manifest = load_manifest(name)
    planned = PlannedBoot(id="standing", role="incumbent-only", libraries=(), strict=1, seconds=manifest.boot_seconds)
    with tempfile.TemporaryDirectory(prefix="carve-standing-") as folder:
        boot = seat_of(manifest, planned).boot(
            BootRequest(
                planned=planned,
                manifest=manifest,
                pack=source_root() / manifest.pack,
                libraries=build_libraries(("incumbent",), manifest.adapter),
                variant="incumbent",
                allowed_declines=(),
                folder=Path(folder),
                sandboxed=False,  # people talk to it, from wherever they are
            )
        )
        try:
            yield boot
        finally:
            boot.stop()
