"""What a recipe made: a pack or a patched tree, under digests, with its provenance."""

from __future__ import annotations

from typing import Literal

from runner.model.base import Digest, Record

PROVENANCE = "provenance.json"
"""File in every product: where each part of it comes from. The same inputs give the same bytes."""


class Product(Record):
    """A finished product. It appeared in its folder all at once."""

    kind: Literal["pack", "tree"]
    """``tree``: packages that stand before the installed ones on the engine's import path."""
    folder: str
    """Absolute path."""
    digests: dict[str, Digest]
    """By name. Of a pack: ``header``, ``payload``, ``small_files``; of a tree: ``tree``; of both: ``provenance`` and
    ``inputs``."""
    summary: dict[str, str]
    """Counts, bytes and errors for a reader."""


class Verified(Record):
    """A product read again from disk and compared with what its order asked for."""

    digests: dict[str, Digest]
    summary: dict[str, str]
    faults: tuple[str, ...]
    provenance: str
    """The product's own ``provenance.json``, as text; empty where it is too long for that (its digest is told)."""


class Estimate(Record):
    """What making a product will take, known without network and without writing."""

    seconds: int
    counts: dict[str, str]
    """Counts and bytes for a reader; what cannot be known yet says so."""
