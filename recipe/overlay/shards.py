"""One weight file of an overlaid pack: written anew, or brought over as the order says."""

from __future__ import annotations

import errno
import fcntl
import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from recipe import shard_write
from recipe.closure import json_object
from recipe.headers import Header
from recipe.overlay.donor import Donor
from recipe.overlay.splice import Plan
from recipe.overlay.target import coming_to, overlay_of, parts_of
from recipe.payload import identity, sha256_of
from recipe.product import Job
from runner.errors import StateError
from runner.files import write_whole

_DONE = "done-"
"""Begins the name of a finished file's note, which lies beside the unfinished folder."""
_FICLONE = 0x40049409


@dataclass(frozen=True)
class Shard:
    """One weight file of the product."""

    how: str
    """``rewritten``, or how it came over: ``copy``, ``link``, ``reflink``."""
    source: str
    """SHA-256 of the source's file, as it was read."""
    digest: str
    """SHA-256 of the product's file."""
    tensors: dict[str, str] = field(default_factory=dict)
    """SHA-256 of each tensor that came from the donor."""


def bring(job: Job, partial: Path, header: Header, plan: Plan, donor: Donor) -> Shard:
    """One file of the product, unless an earlier attempt finished it."""
    name = header.file.name
    target, note = partial / name, partial.parent / f"{_DONE}{name}.json"
    if (finished := _finished(note, target)) is not None:
        return finished
    target.unlink(missing_ok=True)
    source = header.file.resolve()
    if name in plan.rewritten:
        coming = {splice.name for splice in coming_to(plan, name)}
        digest, tensors = shard_write.write(target, parts_of(plan, header, donor), header.metadata, coming)
        made = Shard("rewritten", sha256_of(source), digest, tensors)
    else:
        how = overlay_of(job).unchanged
        digest = _BRING[how](job, source, target)
        made = Shard(how, digest, digest)
    write_whole(note, json.dumps(asdict(made) | {"as": identity(target)}).encode())
    job.note(f"{name} {made.how}")
    return made


def _finished(note: Path, target: Path) -> Shard | None:
    """What an earlier attempt noted of a file that lies there as it was left."""
    told = json_object(note.read_bytes()) if note.is_file() else None
    if told is None or not target.is_file() or told.pop("as", None) != identity(target):
        return None
    return Shard(**told) if told.keys() == {one.name for one in fields(Shard)} else None


def _copied(_job: Job, source: Path, target: Path) -> str:
    found: list[str] = []
    shard_write.appear(target, lambda put: found.append(sha256_of(source, put)))
    return found[0]


def _linked(job: Job, source: Path, target: Path) -> str:
    """A second name of the same file: only inside a store, whose packs are never written to."""
    for path in (source, target):
        inside_store(job, path)
    digest = sha256_of(source)
    os.link(source, target)
    return digest


def inside_store(job: Job, path: Path) -> None:
    """StateError for a file that does not lie in the order's pack store."""
    store = (job.root / (overlay_of(job).store or "")).resolve()
    if not path.resolve().is_relative_to(store):
        raise StateError(
            "a file outside the pack store cannot be shared",
            where=str(path),
            expected=f"a path in {store}",
            found=str(path.resolve()),
            next_step="move the pack into the store, or copy unchanged files",
        )


def _reflinked(_job: Job, source: Path, target: Path) -> str:
    """A copy that shares its blocks until one side is written to. Raises StateError where the disk cannot do it."""
    digest = sha256_of(source)
    with source.open("rb") as old, target.open("xb") as new:
        try:
            fcntl.ioctl(new.fileno(), _FICLONE, old.fileno())
        except OSError as error:
            target.unlink()
            if error.errno in (errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL, errno.ENOTTY):
                raise StateError(
                    "this file system has no reflinks",
                    where=str(target),
                    found=str(error.strerror),
                    next_step="copy unchanged files, or link them inside a pack store",
                ) from error
            raise
    return digest


_BRING: dict[str, Callable[[Job, Path, Path], str]] = {"copy": _copied, "link": _linked, "reflink": _reflinked}
