"""What every record shares."""

from __future__ import annotations

from math import isfinite
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
"""Lower-case hex SHA-256."""


def _finite(text: str) -> str:
    if not isfinite(float(text)):
        raise ValueError("no number that binary64 holds")
    return text


DecimalText = Annotated[
    str,
    StringConstraints(pattern=r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE]-?[0-9]+)?$"),
    AfterValidator(_finite),
]
"""A number that decides, kept as decimal text so that no reader rounds it."""

Slug = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9.\-]*[a-z0-9])?$", max_length=80)]
"""A name: lower-case letters, digits, dots and dashes."""

_DAY, _TIME = r"[0-9]{4}-[01][0-9]-[0-3][0-9]", r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6})?"
Instant = Annotated[str, StringConstraints(pattern=f"^{_DAY}T{_TIME}Z$")]
"""UTC time in RFC 3339, in the digits and hours that every reader takes alike: newer Pythons also read 24:00:00."""

Arm = Literal["incumbent", "candidate"]
"""Which side of a comparison a window measured."""

Operator = Literal["routed_experts", "linear"]
"""What a variant computes: all experts of a layer, or one linear module whose matrices share an input."""
ROUTED: Operator = "routed_experts"


class Record(BaseModel):
    """Frozen, closed, documented by the string under each field."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


def later(default: Any) -> Any:
    """A field that came later: where it holds its default, a record has the bytes, and so the digest, of before it."""
    return Field(default=default, exclude_if=lambda value: value == default)


def decimal_text(value: float) -> str:
    """A finite number as :data:`DecimalText` with twelve significant digits. Raises ValueError for NaN or infinity."""
    if not isfinite(value):
        raise ValueError(f"{value} is no decimal number")
    return format(value, ".12g").replace("e+", "e")
