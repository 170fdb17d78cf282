"""The one interface between the runner and a recipe: a job goes in, a product comes out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from recipe.pack import read_pack
from runner.digest import sha256_file
from runner.model.base import Record
from runner.model.product import PROVENANCE, Estimate, Product, Verified


def _silent(_what: str) -> None:
    """Nobody listens."""


@dataclass(frozen=True)
class Job:
    """What a recipe is asked to make; every path is absolute."""

    recipe: Record
    """The order's ``recipe`` block, typed by the order's kind."""
    standing: Path
    """The pack that the seat serves today."""
    root: Path
    """Where relative paths of the order start."""
    product: Path
    """The folder that appears whole or not at all. Nothing else is written outside ``work``."""
    work: Path
    """Private, kept between attempts: checkpoints, downloads, generated packs."""
    patches: Path | None = None
    """Folder of the patches where a craftsperson's are judged; else the checkout's own."""
    note: Callable[[str], None] = _silent


class Recipe(Protocol):
    """A module with these three functions, named in ``runner.steps.make``."""

    def estimate(self, job: Job) -> Estimate:
        """Counts, bytes and seconds from what lies on this disk. No network, no writes. Raises InputError."""
        ...

    def make(self, job: Job) -> Product:
        """Make the product, or find it made: after a kill at any point the same call gives the same bytes.

        Raises InputError for an order or input that does not fit, StateError where the disk stands in the way.
        """
        ...

    def verify(self, job: Job, product: Product) -> Verified:
        """Read the product again, all of it: its digests as found, and every way in which it is not what was asked."""
        ...


def pack_digests(folder: Path, kept: Path | None = None) -> dict[str, str]:
    """Digests of a pack that a recipe made, as it lies on disk; ``kept`` as in :func:`recipe.payload.file_digests`.

    Raises PackError where it is broken.
    """
    pack = read_pack(folder)
    return {
        "header": pack.header_digest(),
        "payload": pack.payload_digest(kept),
        "small_files": pack.small_files_digest(),
        "provenance": sha256_file(folder / PROVENANCE),
    }


__all__ = ["Estimate", "Job", "Product", "Recipe", "Verified", "pack_digests"]
