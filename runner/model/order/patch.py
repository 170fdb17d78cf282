"""What a patch order applies: named patches in order, on one distribution."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from runner.model.base import Digest, Record, Slug
from runner.model.scalars import Line


class Patching(Record):
    """Patches of ``recipe/patches`` as one set; the seat's own installation is never written to."""

    distribution: Line
    """``name==version``, installed for the interpreter that runs the seat."""
    patches: Annotated[tuple[Slug, ...], Field(min_length=1)]
    """Applied in this order."""
    after: dict[str, Digest] = {}
    """File to its SHA-256 after the whole set, where the order fixes it."""
