"""How a fact is derived again by the tool, so that nobody has to believe it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from runner.model.base import Record
from runner.model.scalars import Line, Whole


class Calculation(Record):
    """Arithmetic over numbers and other facts of the order."""

    kind: Literal["calculation"]
    expression: Line
    """``+ - * / **``, parentheses, ``gcd(...)``, ``min(...)``, ``max(...)`` and ids of facts, dashes as underscores."""


class ExpertBytes(Record):
    """Bytes of one routed expert of one rank in EXL3: gate, up and down with their sign vectors."""

    kind: Literal["expert-bytes"]
    hidden: Whole
    intermediate: Whole
    """Of one rank."""
    bits: Whole


class LinearBytes(Record):
    """Bytes of one EXL3 linear on one rank."""

    kind: Literal["linear-bytes"]
    in_features: Whole
    out_features: Whole
    bits: Whole
    ranks: Whole = 1
    split: Literal["none", "in", "out"] = "none"
    """Which side tensor parallelism divides; ``none`` for a replicated linear."""


class UniqueExperts(Record):
    """Expected number of different experts that a step touches under uniform routing."""

    kind: Literal["unique-experts"]
    experts: Whole
    top_k: Whole
    rows: Whole


class PackCensus(Record):
    """A reading of a pack's headers."""

    kind: Literal["pack"]
    pack: Line
    """Folder, relative to the checkout."""
    modules: Line = "*"
    """Which coded modules, as a glob over their names."""
    quantity: Literal["modules", "bits", "in-features", "out-features", "bytes"]
    """``bits`` and the features must be the same in all of them; ``modules`` counts, ``bytes`` adds up."""


class Quote(Record):
    """Words that stand in a file, and where: evidence that moves away is noticed."""

    kind: Literal["quote"]
    file: Line
    """Relative to the checkout."""
    text: Line
    line: Whole | None = None
    """Counted from 1; without it the words may stand anywhere in the file."""


Probe = Annotated[
    Calculation | ExpertBytes | LinearBytes | UniqueExperts | PackCensus | Quote, Field(discriminator="kind")
]
"""Any way to derive a fact again."""
