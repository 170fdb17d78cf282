"""Where the donor's tensors are read from: a pack on this disk, a repository on a hub, or a pack made by a tool."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from recipe.headers import Entry
from recipe.mini.donors import TOOLS
from recipe.pack import Pack, read_pack
from recipe.payload import identity
from recipe.product import Job
from recipe.provenance import history_of
from recipe.remote import Repository, token
from runner.digest import sha256_file, sha256_json
from runner.errors import InputError
from runner.model.order.overlay import Generated, PackSource

_MADE: dict[Path, tuple[str, str]] = {}
"""What this process has had made: folder to what was asked for and the digest of what came out."""


class Donor(Protocol):
    """Tensors by name, and their bytes."""

    @property
    def entries(self) -> Mapping[str, Entry]:
        """Every tensor of the files that matter."""
        ...

    def identity(self) -> dict[str, object]:
        """What names the donor's bytes: digests, revision, entity tags, and how it was made where it says so."""
        ...

    def marks(self) -> dict[str, str]:
        """What moves when somebody writes to the donor between two attempts."""
        ...

    def fetch(self, entries: Iterable[Entry]) -> None:
        """Have the bytes on this disk. Raises as :meth:`recipe.remote.Repository.fetch`."""
        ...

    def place(self, entry: Entry) -> tuple[Path, int]:
        """File and first byte of a tensor."""
        ...


@dataclass(frozen=True)
class LocalDonor:
    """A whole pack on this disk."""

    pack: Pack

    @property
    def entries(self) -> Mapping[str, Entry]:
        return self.pack.tensors

    def identity(self) -> dict[str, object]:
        history = history_of(self.pack.folder)
        return {"header_digest": self.pack.header_digest()} | ({"history": history} if history else {})

    def marks(self) -> dict[str, str]:
        return {header.file.name: identity(header.file) for header in self.pack.headers}

    def fetch(self, entries: Iterable[Entry]) -> None:
        """They are here."""

    def place(self, entry: Entry) -> tuple[Path, int]:
        return entry.file, entry.start


@dataclass(frozen=True)
class RemoteDonor:
    """Files of a repository, as far as they were fetched."""

    repository: Repository
    entries: Mapping[str, Entry]
    header_digest: str

    def identity(self) -> dict[str, object]:
        repository = self.repository
        return {
            "repository": repository.name,
            "revision": repository.revision,
            "header_digest": self.header_digest,
            "entity_tags": repository.tags(),
        }

    def marks(self) -> dict[str, str]:
        return {}  # every range is kept under its digest

    def fetch(self, entries: Iterable[Entry]) -> None:
        self.repository.fetch(entries)

    def place(self, entry: Entry) -> tuple[Path, int]:
        return self.repository.place(entry)


def open_donor(job: Job, wanted: PackSource, layers: Iterable[str]) -> Donor:
    """The donor of a job. Raises InputError, PackError and StateError where it is not what the order says."""
    if wanted.repository is not None and wanted.revision is not None:
        folder = job.work / "donor"
        endpoint = os.environ.get("HF_ENDPOINT")
        repository = Repository(wanted.repository, wanted.revision, folder, endpoint, token())
        return remote(repository, layers, wanted)
    donor = LocalDonor(open_pack(job, wanted, "donor"))
    _pinned(wanted, donor.pack.header_digest())
    return donor


def remote(repository: Repository, layers: Iterable[str], wanted: PackSource) -> RemoteDonor:
    """The donor behind a repository: its headers are read, no tensor yet."""
    headers = repository.headers([f"{layer}." for layer in layers])
    digest = sha256_json({header.file.name: header.digest for header in headers})
    _pinned(wanted, digest)
    return RemoteDonor(repository, {entry.name: entry for header in headers for entry in header.entries}, digest)


def open_pack(job: Job, wanted: PackSource, role: str) -> Pack:
    """A pack on this disk, made first where the order has a tool make it."""
    if wanted.generated is not None:
        return _generated(job, wanted.generated, job.work / role)
    if wanted.pack is None:
        raise InputError(
            "this pack must lie on this disk", where=role, expected="pack or generated", found="repository"
        )
    return read_pack(job.root / wanted.pack)


def _generated(job: Job, wanted: Generated, folder: Path) -> Pack:
    """What the tool makes of the standing pack: the same each time, so what an earlier attempt left is compared."""
    words = sha256_json([wanted.model_dump(mode="json"), read_pack(job.standing).header_digest()])
    if folder.exists() and _MADE.get(folder) == (words, _content(folder)):
        return read_pack(folder)
    again = folder.with_name(f"{folder.name}.again")
    shutil.rmtree(again, ignore_errors=True)
    job.work.mkdir(parents=True, exist_ok=True)
    job.note(f"make the {folder.name} with {wanted.tool}")
    tool_of(wanted)(job.standing, again, wanted)
    content = _content(again)
    if folder.is_dir() and not folder.is_symlink() and _content(folder) == content:
        shutil.rmtree(again)
    else:
        if folder.is_symlink() or folder.is_file():
            folder.unlink()
        elif folder.exists():
            shutil.rmtree(folder)
        again.rename(folder)
    _MADE[folder] = (words, content)
    return read_pack(folder)


def _content(folder: Path) -> str:
    """Of every name: a link or an empty folder too is something that the tool did not make."""
    return sha256_json(
        {
            path.relative_to(folder).as_posix(): sha256_file(path)
            if path.is_file() and not path.is_symlink()
            else "other"
            for path in folder.rglob("*")
        }
    )


def tool_of(generated: Generated) -> Callable[[Path, Path, Generated], object]:
    """The tool that an order names. Raises InputError."""
    if generated.tool not in TOOLS:
        raise InputError("no such tool", where="recipe", expected=", ".join(TOOLS), found=generated.tool)
    return TOOLS[generated.tool]


def _pinned(wanted: PackSource, found: str) -> None:
    if wanted.header_digest is not None and wanted.header_digest != found:
        raise InputError(
            "the pack is not the one the order fixed", where="header digest", expected=wanted.header_digest, found=found
        )
