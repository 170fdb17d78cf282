"""What every record shares."""

from __future__ import annotations

from math import isfinite
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, StringConstraints

Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
"""Lower-case hex SHA-256."""

DecimalText = Annotated[str, StringConstraints(pattern=r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE]-?[0-9]+)?$")]
"""A number that decides, kept as decimal text so that no reader rounds it."""

Slug = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9.\-]*[a-z0-9])?$", max_length=80)]
"""A name: lower-case letters, digits, dots and dashes."""

Instant = Annotated[str, StringConstraints(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?Z$")]
"""UTC time in RFC 3339."""

Arm = Literal["incumbent", "candidate"]
"""Which side of a comparison a window measured."""


class Record(BaseModel):
    """Frozen, closed, documented by the string under each field."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


def decimal_text(value: float) -> str:
    """A finite number as :data:`DecimalText` with twelve significant digits. Raises ValueError for NaN or infinity."""
    if not isfinite(value):
        raise ValueError(f"{value} is no decimal number")
    return format(value, ".12g").replace("e+", "e")
