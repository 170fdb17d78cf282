"""A seat outside a run: the incumbent, booted and stopped."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from runner import ledger
from runner.attest.trust import load_trust
from runner.clock import now
from runner.model.adoption import Observation
from runner.model.boot import BootRecord
from runner.model.plan import PlannedBoot
from runner.steps.build import build_libraries, engine_subjects, pack_subjects, standing_variants, subjects_of
from runner.steps.seal import runner_key
from runner.steps.seats import load_manifest, pack_of, seat_of
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
                pack=pack_of(manifest),
                libraries=build_libraries(standing_variants(manifest), manifest),
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


def observe(workspace: Path, name: str, boot: BootRecord) -> Path:
    """Sign what the seat is now into the ledger, under the names that reports use; the statement's path.

    Later reports and adoptions are compared with the newest observation. Raises InputError, SeatError, TrustError.
    """
    manifest, key = load_manifest(name), runner_key()
    subjects = subjects_of(build_libraries(standing_variants(manifest), manifest)) | engine_subjects(manifest)
    subjects |= pack_subjects(manifest) if manifest.adapter != "fake" else {}
    seen = Observation(
        created_at=now(),
        parents=ledger.load(workspace, load_trust(workspace)).heads(),
        seat=name,
        label=boot.label,
        subjects=subjects,
        resolved=boot.resolved,
    )
    return ledger.append_observation(workspace, seen, key)
