"""Which linears a bake codes, at how many bits, from which weights; everything else is kept from the standing pack."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from runner.model.base import Record
from runner.model.scalars import Line, Number, Whole


class Calibration(Record):
    """Text whose activations say which errors matter. It must share no passage with what the gates measure on."""

    texts: Line
    """JSON lines of ``{"id", "language", "text"}``, relative to the checkout."""
    documents: Annotated[Whole, Field(ge=1)]
    tokens: Annotated[Whole, Field(ge=1)] = 600
    """At most, of each document."""


class Rate(Record):
    """Bits for the modules that a pattern names."""

    modules: Line
    """A glob over module names, for example ``model.layers.*.self_attn.*``."""
    bits: Annotated[Whole, Field(ge=1, le=8)]


class PlantedFault(Record):
    """A deliberate error, so that an order shows that its gates catch it: one module's output scales are wrong."""

    module: Line
    factor: Number
    """Multiplies ``svh``."""


class Bake(Record):
    """A calibrated EXL3 coding of named linears."""

    source: Line | None = None
    """Folder with the plain weights; the standing pack, which holds them in 16 bit, where there is none."""
    preset: Literal["glm4-moe-attention", "deepseek-v4-dense"] | None = None
    """The linears of a known architecture that carry no routed expert, and which of them a served module fuses."""
    prefix: Line = "model.layers"
    """What stands before a layer's number in the preset's names."""
    modules: tuple[Line, ...] = ()
    """Globs over module names, beside or instead of a preset."""
    skip: tuple[Line, ...] = ()
    """Globs of modules that stay as they are whatever the preset and ``modules`` say."""
    count: Whole | None = None
    """How many modules that must be, where the order fixes it."""
    rates: Annotated[tuple[Rate, ...], Field(min_length=1)]
    """The last pattern that fits a module decides; every module needs one."""
    codebook: Literal["mcg", "mul1", "default"] = "mcg"
    seed: Whole = 0
    quantiser: Literal["native", "exllamav3", "exllamav3-conversion"] = "native"
    """``native`` runs on processors. The others need a GPU: ``exllamav3`` is that library's search on our calibration,
    ``exllamav3-conversion`` its conversion of the whole source, on our calibration or, where there is none, on the text
    that comes with the library (with 1.6.5, not with 1.4.5)."""
    calibration: Calibration | None = None
    planted_fault: PlantedFault | None = None

    @model_validator(mode="after")
    def _names_something(self) -> Self:
        if self.preset is None and not self.modules:
            raise ValueError("a bake needs a preset or modules")
        return self
