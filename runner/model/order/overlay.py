"""What an overlay replaces, by what and how: names and edits are data, resolved before the first byte is read."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from runner.model.base import Digest, Record, Slug
from runner.model.scalars import Line, Pin, Setting, Whole


class Generated(Record):
    """A pack that a tool of ``recipe/mini`` makes from the standing pack and a seed."""

    tool: Slug
    """``requantised-experts``: experts coded again at other bits. ``rescaled-experts``: their scales moved a little.
    ``float8-experts``: experts in blocks of float8."""
    layers: Annotated[tuple[Whole, ...], Field(min_length=1)]
    bits: Annotated[Whole, Field(ge=1, le=8)] | None = None
    seed: Whole = 0


class PackSource(Record):
    """Where a pack comes from: exactly one of a folder, a repository and a tool."""

    pack: Line | None = None
    """Folder, absolute or relative to the checkout."""
    repository: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]+/[A-Za-z0-9._-]+$")] | None = None
    """``owner/name`` on a Hugging Face hub; read by ranges, never a whole shard."""
    revision: Pin | None = None
    """Commit of the repository, all forty digits."""
    generated: Generated | None = None
    header_digest: Digest | None = None
    """What the pack's headers must be, where the order fixes it."""

    @model_validator(mode="after")
    def _one_of_three(self) -> Self:
        given = [name for name in ("pack", "repository", "generated") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"exactly one of pack, repository and generated, found {', '.join(given) or 'none'}")
        if (self.repository is None) != (self.revision is None):
            raise ValueError("a repository needs its revision, and nothing else has one")
        if self.revision is not None and len(self.revision) != 40:
            raise ValueError("a revision is a whole commit of forty digits: a branch or a short digest may move")
        return self


class ConfigurationEdits(Record):
    """Changes of ``config.json`` beside its quantisation block, which is always derived from the new headers."""

    set: dict[str, Setting] = {}
    """Dotted path to value; ``a.b: 1`` sets ``b`` inside ``a``."""
    remove: tuple[Line, ...] = ()
    """Dotted paths that must be there and go."""


class Overlay(Record):
    """Routed experts of some layers replaced by a donor's."""

    what: Literal["layer", "mtp"]
    """``layer``: experts of layers of the model. ``mtp``: experts of the draft layers, in whatever format they stand.
    A layer of the other kind is refused, so that nobody changes the model who meant its drafts."""
    source: PackSource | None = None
    """The pack that is changed; the target's standing pack where there is none."""
    donor: PackSource
    layers: dict[str, Line]
    """Prefix of a layer in the donor to its prefix in the source, for example ``model.layers.43: mtp.0``."""
    experts: Line
    """Where routed experts stand below a layer of the source, for example ``mlp.experts``."""
    names: dict[str, Line] = {}
    """Parts of the donor's names (between dots) to the source's, for example ``gate_proj: w1``."""
    fused: tuple[tuple[Line, ...], ...] = ()
    """Projections of one expert that a served module fuses: one K and one codebook each, or the overlay is refused."""
    configuration: ConfigurationEdits = ConfigurationEdits()
    unchanged: Literal["link", "reflink", "copy"] = "copy"
    """How shards without a replaced tensor come over; ``link`` (a hard link) needs ``store``."""
    store: Line | None = None
    """Folder of packs that are never written to again. Source and product lie in it; only there may files be shared."""

    @model_validator(mode="after")
    def _links_need_a_store(self) -> Self:
        if self.unchanged == "link" and self.store is None:
            raise ValueError("unchanged shards can only be linked inside a pack store: name one, or copy")
        if not self.layers:
            raise ValueError("an overlay without layers replaces nothing")
        if len(set(self.layers.values())) != len(self.layers):
            raise ValueError("two layers of the donor would replace one layer of the source")
        return self
