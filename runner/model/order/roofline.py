"""Floors and ceilings: what no craft can beat."""

from __future__ import annotations

from runner.model.base import Record, Slug
from runner.model.scalars import Line, Number


class Floor(Record):
    """The least time in which bytes can be moved. A threshold that names a floor may not ask for less."""

    id: Slug
    what: Line
    bytes: Number
    """That have to move."""
    bandwidth: Number
    """In 10⁹ bytes a second, as measured on the seat, not as printed on the box."""
    microseconds: Number | None = None
    """As the order quotes it; the check divides again."""
    rests_on: tuple[Slug, ...] = ()
    """Facts behind the numbers; none may be refuted or superseded."""
