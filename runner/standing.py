"""A seat outside a run: the incumbent, booted and stopped."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from pydantic import JsonValue

from runner import ledger
from runner.attest.trust import load_trust
from runner.clock import now
from runner.errors import InputError
from runner.model.adoption import Observation
from runner.model.boot import BootRecord
from runner.model.configuration import pairs
from runner.model.plan import MANIFEST, PlannedBoot
from runner.model.sample import FieldPair
from runner.model.seat import SeatManifest
from runner.plan import manifest_digest
from runner.seat_lock import occupied
from runner.steps.build import build_libraries, engine_subjects, pack_subjects, standing_variants, subjects_of
from runner.steps.seal import signing_key
from runner.steps.seats import load_manifest, pack_of, seat_of
from serve.adapters.docker_readback import canonical, with_unasked
from serve.adapters.docker_standing import standing as container_now
from serve.seat import STANDING, Boot, BootRequest


@contextmanager
def standing(name: str, *, sandboxed: bool = False) -> Iterator[Boot]:
    """The incumbent of seat ``name``, until the block ends. Raises InputError, SeatError, StateError for one in use.

    Without a sandbox people can talk to it from wherever they are; with one it starts as it does in a run.
    """
    with occupied(name, "a standing seat"), brought_up(load_manifest(name), sandboxed=sandboxed) as boot:
        yield boot


@contextmanager
def brought_up(manifest: SeatManifest, run: str = STANDING, *, sandboxed: bool = False) -> Iterator[Boot]:
    """The incumbent as it stands in production, until the block ends; for ``run`` where it is one's part.

    Raises InputError, SeatError.
    """
    with tempfile.TemporaryDirectory(prefix="carve-standing-") as folder:
        libraries = build_libraries(standing_variants(manifest), manifest)
        request = replace(canonical_boot(manifest, Path(folder)), libraries=libraries, sandboxed=sandboxed, run=run)
        boot = seat_of(manifest, request.planned).boot(request)
        try:
            yield boot
        finally:
            boot.stop()


def canonical_boot(manifest: SeatManifest, folder: Path) -> BootRequest:
    """The incumbent as it stands in production, without its libraries."""
    strict = manifest.container.strict.production if manifest.container else 1
    known = {"id": "standing", "role": "incumbent-only", "libraries": (), "strict": strict}
    return BootRequest(
        planned=PlannedBoot.model_validate(known | {"seconds": manifest.boot_seconds}),
        manifest=manifest,
        pack=pack_of(manifest),
        libraries={},
        variant="incumbent",
        allowed_declines=(),
        folder=folder,
    )


def standing_state(manifest: SeatManifest, boot: Boot) -> tuple[dict[str, JsonValue], dict[str, JsonValue]]:
    """(canonical, found) of a docker seat's standing boot: what was asked, mounts, variables, log lines, KV tokens."""
    assert manifest.container is not None, "a docker seat describes its container"
    record = boot.record
    counted = canonical(manifest.container.canonical, boot.logs(), record.kv_tokens)
    answer = record.resolved | counted[1]
    return with_unasked(record.requested | counted[0], answer), answer


def differences_now(name: str) -> tuple[str, int, tuple[FieldPair, ...]]:
    """(container, fields compared, those that differ) of what stands on a docker seat; nothing is started.

    Raises InputError for a seat of another kind, SeatError where nothing stands.
    """
    manifest = load_manifest(name)
    if manifest.container is None:
        where = f"{name} ({manifest.adapter})"
        raise InputError(
            "nothing stands on this seat without a runner", where=where, next_step=f"`runner seat readback {name}`"
        )
    container, asked, answer = container_now(canonical_boot(manifest, Path()))
    compared = pairs(asked, answer)
    return container, len(compared), tuple(one for one in compared if one.requested != one.resolved)


def observe(workspace: Path, name: str, boot: BootRecord) -> Path:
    """Sign what the seat is now into the ledger, under the names that reports use; the statement's path.

    Later reports and adoptions are compared with the newest observation. Raises InputError, SeatError, TrustError.
    """
    manifest, key = load_manifest(name), signing_key(workspace)
    subjects = subjects_of(build_libraries(standing_variants(manifest), manifest)) | engine_subjects(manifest)
    subjects |= pack_subjects(manifest) | {MANIFEST: manifest_digest(manifest)}
    seen = Observation(
        created_at=now(),
        parents=ledger.load(workspace, load_trust(workspace)).heads(),
        seat=name,
        label=boot.label,
        subjects=subjects,
        resolved=boot.resolved,
    )
    return ledger.append_observation(workspace, seen, key)
