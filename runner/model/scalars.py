"""How a scalar that a person wrote gets its type: from its source text, by the field it stands in.

YAML 1.1 and 1.2 disagree on ``off``, ``695e0514``, ``07320415``, ``8:30`` and ``1e-3``. The loader therefore hands on
the text of a scalar written without quotes as :class:`Plain`, and the fields below decide. A value that already has its
type (a record read back from JSON) passes.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, JsonValue, StringConstraints, WithJsonSchema

from runner.model.base import DecimalText

_WHOLE = re.compile(r"-?(0|[1-9][0-9]*)\Z")
_DECIMAL = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE]-?[0-9]+)?\Z")
LARGEST = 2**63 - 1
LONGEST = 400
"""Characters of a number, and the largest power of ten in it."""
_PRETENDS = re.compile(
    r"[-+]?(\.inf|\.nan|0x[0-9a-f]+|0o?[0-7]+|0b[01]+|[0-9][0-9_,]*[0-9_]|[0-9]+(:[0-9.]+)+|\.[0-9]+|[0-9]+\.?[0-9]*e\+?[0-9]+)\Z",
    re.IGNORECASE,
)
"""Text that some YAML reader takes for a number and that is not one of ours."""


class Plain(str):
    """A scalar as it was written, without quotes."""

    __slots__ = ()


def _whole(value: object) -> object:
    if isinstance(value, Plain):
        if not _WHOLE.match(value):
            raise ValueError(f"expected a whole number such as 12, found {str(value)!r}")
        return _integer(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"expected a whole number without quotes, found {value!r}")
    return value


def _integer(text: str) -> int:
    """Raises ValueError for more than 63 bits: nothing here counts so far."""
    if len(text) > len(str(LARGEST)) + 1 or abs(int(text)) > LARGEST:
        raise ValueError(f"a whole number beyond {LARGEST}")
    return int(text)


def _flag(value: object) -> object:
    if isinstance(value, Plain) and value in ("true", "false"):
        return value == "true"
    if isinstance(value, bool):
        return value
    raise ValueError(f"expected true or false, found {str(value)!r}")


def _number(value: object) -> object:
    if isinstance(value, str) and (found := _DECIMAL.match(value)):
        power = (found[3] or "e0")[1:]
        digits = re.search("[1-9]", value[: found.start(3)] if found[3] else value)
        if len(value) > LONGEST or abs(int(power)) > LONGEST or (digits and float(value) == 0):
            raise ValueError("no number that binary64 holds")
        return str(value)
    raise ValueError(f"expected a number such as 0.02 or 1e-3, found {str(value)!r}")


def _free(value: object) -> object:
    """Type a value that no field describes: numbers with a fraction stay decimal text, other words stay words."""
    if isinstance(value, dict):
        return {str(key): _free(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_free(inner) for inner in value]
    if not isinstance(value, Plain):
        return value
    if value in ("true", "false"):
        return value == "true"
    if _WHOLE.match(value):
        return _integer(value)
    if _PRETENDS.match(value):
        raise ValueError(f"{str(value)!r} is read differently by different YAML readers: put it in quotes")
    return str(value)


def _setting(value: object) -> object:
    """As :func:`_free`, but a number with a fraction becomes one: the value goes into somebody else's JSON."""
    if isinstance(value, dict):
        return {str(key): _setting(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_setting(inner) for inner in value]
    if isinstance(value, Plain) and not _WHOLE.match(value) and _DECIMAL.match(value):
        return float(value)
    return _free(value)


Whole = Annotated[int, BeforeValidator(_whole)]
"""A whole number in plain decimal digits."""

Flag = Annotated[bool, BeforeValidator(_flag)]
"""``true`` or ``false`` and nothing else: ``on``, ``off``, ``yes`` and ``no`` are words."""

Number = Annotated[
    DecimalText,
    BeforeValidator(_number),
    WithJsonSchema(
        {"anyOf": [{"type": "number"}, {"type": "string", "pattern": _DECIMAL.pattern.replace(r"\Z", "$")}]}
    ),
]
"""A decimal number, kept as text so that no reader rounds it."""

Free = Annotated[JsonValue, BeforeValidator(_free)]
"""A parameter whose type its consumer knows."""

Setting = Annotated[JsonValue, BeforeValidator(_setting)]
"""A value of another program's configuration."""

Pin = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{7,64}$")]
"""A commit or digest, digit for digit as it was written."""

UNKNOWN = "unknown"
"""Stands for a pin that nobody recorded."""

PinOrUnknown = Annotated[str, StringConstraints(pattern=r"^([0-9a-f]{7,64}|unknown)$")]
"""A pin, or ``unknown`` where nobody recorded it: then a plan stays a draft."""

Line = Annotated[str, StringConstraints(min_length=1, strip_whitespace=True)]
"""Text that says something."""


def _inside(value: str) -> str:
    path = PurePosixPath(value)
    if path.is_absolute() or ".." in path.parts:
        raise ValueError(f"{value!r} leaves the checkout")
    if not value.isprintable():
        raise ValueError(f"{value!r} is not one path")
    return value


Inside = Annotated[Line, AfterValidator(_inside)]
"""A path or glob relative to the checkout."""
