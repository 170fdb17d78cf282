"""JSON documents as large as a pack's provenance, written, compared and begun without being held whole."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any

from recipe.closure import json_object

_ENCODER = json.JSONEncoder(ensure_ascii=False)


def lines(value: object) -> Iterator[str]:
    """What ``json.dumps(value, indent=1, ensure_ascii=False)`` and a newline are, line by line.

    An iterator inside ``value`` is written as an array; what it yields is asked for one by one.
    """
    yield from _lines(value, "", "", "")


def _lines(value: object, indent: str, before: str, after: str) -> Iterator[str]:
    if isinstance(value, Mapping):
        members: Iterable[tuple[str, Any]] = ((f"{_ENCODER.encode(name)}: ", one) for name, one in value.items())
        opening, closing = "{", "}"
    elif isinstance(value, list | tuple | Iterator):
        members, opening, closing = (("", one) for one in value), "[", "]"
    else:
        yield f"{indent}{before}{_ENCODER.encode(value)}{after}\n"
        return
    held = next(members := iter(members), None)
    if held is None:
        yield f"{indent}{before}{opening}{closing}{after}\n"
        return
    yield f"{indent}{before}{opening}\n"
    while held is not None:
        name, one = held
        held = next(members, None)
        yield from _lines(one, indent + " ", name, "" if held is None else ",")
    yield f"{indent}{closing}{after}\n"


def write(path: Path, value: object) -> None:
    """Write ``value`` as :func:`lines`. Raises OSError."""
    with path.open("w", encoding="utf-8") as stream:
        stream.writelines(lines(value))


def same(path: Path, value: object) -> bool:
    """Whether the file holds ``value`` exactly as :func:`write` writes it."""
    with path.open("rb") as stream:
        return all(mine == theirs for mine, theirs in zip_longest(stream, map(str.encode, lines(value))))


def beginning(path: Path, before: str) -> dict[str, Any] | None:
    """The members of the object in the file that stand before the array called ``before``, without reading on.

    The whole object where the file was not written by :func:`write`, or has no such member; None where it is no object
    (:func:`recipe.closure.json_object`).
    """
    start, read = f" {_ENCODER.encode(before)}: [".encode(), bytearray()
    with path.open("rb") as stream:
        for line in stream:
            if line.startswith(start) and read.endswith((b",\n", b"{\n")):
                return json_object(bytes(read.rstrip(b",\n")) + b"}") or json_object(path.read_bytes())
            read += line
    return json_object(bytes(read))
