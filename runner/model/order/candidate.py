"""What is judged, and on what."""

from __future__ import annotations

from typing import Literal

from pydantic import field_validator

from runner.model.base import ROUTED, Operator, Record, Slug, later
from runner.model.scalars import Flag, Free, Inside, Line, PinOrUnknown, Whole

DeclineReason = Literal[
    "rows-above-limit", "rows-below-limit", "shape", "bits", "codebook", "not-ready", "processor", "other"
]
"""Typed reasons of ``kernels/cpu/abi.h``."""


class Target(Record):
    """Where the candidate has to stand."""

    seat: Slug
    """A manifest in ``serve/seats``."""
    pack: Line
    """The served pack, as the seat's manifest names it."""
    pack_digest: PinOrUnknown = "unknown"
    """Digest of the pack's headers, where somebody recorded it."""
    layer_bits: dict[str, Line] = {}
    """Bits by kind of module, as the pack's headers have them."""
    pins: dict[str, PinOrUnknown] = {}
    """Commits and digests of the stack, digit for digit."""
    serve: dict[str, Free] = {}
    """Engine arguments the order insists on; the seat's own must be equal."""
    environment: dict[str, Line] = {}
    """Engine environment the order insists on; the seat's own must be equal."""
    shapes_fixed: Flag = True


class Candidate(Record):
    """A native variant and the files a craftsperson may touch for it."""

    variant: Slug
    """Name of the variant as the engine switches it."""
    incumbent: Slug = "incumbent"
    """What it is compared with."""
    operator: Operator = later(ROUTED)
    """What it computes; everything else stays the incumbent's in both arms."""
    sources: tuple[Inside, ...] = ()
    """Files that are built, relative to the checkout; empty for a variant that a seat brings itself."""
    files_allowed: tuple[Inside, ...] = ()
    """The only files taken from the frozen candidate; globs relative to the checkout."""
    max_rows: Whole
    """Largest row count the variant takes; more rows are the incumbent's."""
    min_rows: Whole = 1
    strict: Literal[0, 1, 2] = 2
    """2 refuses a decline whose reason is not allowed."""
    allowed_declines: tuple[DeclineReason, ...] = ("rows-above-limit",)

    @field_validator("strict", mode="before")
    @classmethod
    def _digit(cls, value: object) -> object:
        return int(value) if isinstance(value, str) and value in ("0", "1", "2") else value
