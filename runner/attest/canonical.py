"""Reading signed JSON: only the one serialisation that :func:`runner.digest.canonical_json` writes is accepted.

Whoever signs bytes and whoever reads them must see the same values. A duplicate key, ``NaN``, ``1.0`` beside ``1.00``,
an escape or a space more would let two readers disagree, so all of them are refused, each by its name.

Most files are read by msgspec, which does in a fifth of the time what ``json`` does. Only what it writes again byte for
byte, with every float spelt as Python spells it, is taken from it; all else, and so every refusal, is ``json``'s.
"""

from __future__ import annotations

import json
from typing import NoReturn

import msgspec
from pydantic import JsonValue, ValidationError

from runner.digest import canonical_json
from runner.errors import TrustError


class _NotCanonicalError(ValueError):
    """Why the text is refused; turned into a TrustError by :func:`parse_canonical`."""


def _unique(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    found: dict[str, JsonValue] = {}
    for key, value in pairs:
        if key in found:
            raise _NotCanonicalError(f"the key {key!r} twice in one object")
        found[key] = value
    return found


def _no_constant(text: str) -> NoReturn:
    raise _NotCanonicalError(f"{text}, which is no JSON number")


_DECODER = json.JSONDecoder(parse_constant=_no_constant)
_NAMING = json.JSONDecoder(parse_constant=_no_constant, object_pairs_hook=_unique)


def _as_python_writes(text: str) -> float:
    if repr(value := float(text)) != text:
        raise _NotCanonicalError(f"{text}, which Python writes {value!r}")
    return value


_QUICK = msgspec.json.Decoder(float_hook=_as_python_writes)
_SORTED = msgspec.json.Encoder(order="sorted")


def quickly(data: bytes) -> JsonValue | msgspec.UnsetType:
    """The value of ``data`` where msgspec shows that this is its one serialisation; UNSET where that is to be seen."""
    try:
        value: JsonValue = _QUICK.decode(data)
        return value if _SORTED.encode(value) == data else msgspec.UNSET
    except (ValueError, RecursionError):  # of msgspec, or of a float
        return msgspec.UNSET


def parse_canonical(data: bytes, where: str) -> JsonValue:
    """The value of ``data``.

    Raises TrustError unless ``data`` is exactly the canonical serialisation of that value: UTF-8, sorted unique keys,
    no spaces, no NaN or infinity.
    """
    if (found := quickly(data)) is not msgspec.UNSET:
        return found
    try:
        text = data.decode()
        if text.startswith("\ufeff"):
            raise _NotCanonicalError("a byte order mark (BOM)")
        value: JsonValue = _DECODER.decode(text)
        again = canonical_json(value)
        if again != data:  # read once more to name what is wrong: a key given twice is gone from ``value``
            _NAMING.decode(text)
    except (ValueError, RecursionError) as error:
        raise TrustError(
            "signed JSON cannot be read", where=where, expected="canonical JSON in UTF-8", found=str(error)
        ) from error
    if again != data:
        first = next(
            (at for at, (a, b) in enumerate(zip(again, data, strict=False)) if a != b), min(len(again), len(data))
        )
        raise TrustError(
            "signed JSON is not in its one serialisation",
            where=f"{where}, byte {first}",
            expected="sorted keys, no spaces, shortest numbers, no escapes that are not needed",
            found=repr(data[max(0, first - 10) : first + 20]),
        )
    return value


def first_fault(error: ValidationError) -> str:
    """The first thing a record's validator found, with the path of the field."""
    fault = error.errors(include_url=False)[0]
    path = ".".join(str(step) for step in fault["loc"])
    more = error.error_count() - 1
    return f"{path}: {fault['msg']}" + (f" (and {more} more)" if more else "")


__all__ = ["first_fault", "parse_canonical", "quickly"]
