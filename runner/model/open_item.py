"""What is still open about an order: one entry of ``orders/open-items.yaml``."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from runner.model.base import Record, Slug
from runner.model.scalars import Line, Whole


class Closing(Record):
    """How an item was closed."""

    date: Line
    by: Line
    how: Line


class OpenItem(Record):
    """Something that somebody still has to do or decide."""

    id: Slug
    order: Slug
    what: Line
    owner: Line
    impact: Literal["blocks-adoption", "limits-scope", "none"]
    """``blocks-adoption``: no report of the order is adopted until the item is closed."""
    opened: Line
    closed: Closing | None = None


class OpenItems(Record):
    """The whole file."""

    schema_version: Annotated[Whole, Field(ge=1, le=1)]
    items: tuple[OpenItem, ...] = ()

    @model_validator(mode="after")
    def _names_are_unique(self) -> Self:
        names = [item.id for item in self.items]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"item {name!r} is named twice")
        return self


__all__ = ["Closing", "OpenItem", "OpenItems"]
