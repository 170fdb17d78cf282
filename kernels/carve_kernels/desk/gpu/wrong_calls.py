"""Calls of a kernel library's C ABI with one field wrong each: only the library stands between them and the device."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from runner.errors import InputError

Call = TypeVar("Call", bound=ctypes.Structure)
ERROR = "error"
"""What a call is that contradicts itself, beside the typed declines."""


@dataclass(frozen=True)
class Wrong:
    """Fields (``gate.bits``, ``part.0.out``), each of which alone gets one of the values, and the answer due to it."""

    fields: Sequence[str]
    values: Sequence[int]
    answer: str = ERROR
    added: bool = False
    """The values are added to what the field holds, as for addresses that are not aligned."""


def answers(call: Call, wrong: Sequence[Wrong], forward: Callable[[Call], str]) -> Mapping[str, tuple[str, str]]:
    """Name to (expected, found), the unchanged call first."""
    found = {"right-call": ("", _answer(call, forward))}
    for each in wrong:
        for field in each.fields:
            for value in each.values:
                other = type(call).from_buffer_copy(call)
                _set(other, field.split("."), value, added=each.added)
                name = f"{field}+{value}" if each.added else f"{field}={value}"
                found[name] = (each.answer, _answer(other, forward))
    return found


def _answer(call: Call, forward: Callable[[Call], str]) -> str:
    try:
        return forward(call)
    except InputError:
        return ERROR


def _set(whole: ctypes.Structure, path: Sequence[str], value: int, *, added: bool) -> None:
    place: object = whole
    for step in path[:-1]:
        place = place[int(step)] if isinstance(place, ctypes.Array) else getattr(place, step)
    held = getattr(place, path[-1]) or 0
    setattr(place, path[-1], held + value if added else value)
