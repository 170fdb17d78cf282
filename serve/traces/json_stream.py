"""A large JSON object read piece by piece: one long array is handed out item by item, the rest is small."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import IO, Any

from runner.errors import EvidenceError

CHUNK = 1 << 20
"""Characters read at a time."""
LARGEST = 16 << 20
"""Characters that one value outside the array, or one item of it, may take: memory stays below a few times this."""

_DECODER = json.JSONDecoder()
_DELIMITERS = tuple(" \t\n\r,:]}")
_BLANK = re.compile(r"[ \t\n\r]*")


class Reader:
    """A text file with a window on it that only grows while a value is not whole yet."""

    def __init__(self, file: IO[str], name: str) -> None:
        self._file, self._name = file, name
        self._text, self._at, self._ended = "", 0, False

    def next_character(self) -> str:
        """The next character that is no white space, not yet taken; empty at the end of the file."""
        while True:
            blank = _BLANK.match(self._text, self._at)
            self._at = blank.end() if blank else self._at
            if self._at < len(self._text) or not self._more():
                return self._text[self._at : self._at + 1]

    def take(self, allowed: str) -> str:
        """Take the next character, which has to be one of ``allowed``. Raises EvidenceError."""
        found = self.next_character()
        if not found or found not in allowed:
            raise self._torn(f"one of {allowed}", found or "the end of the file")
        self._at += 1
        return found

    def value(self) -> Any:
        """Take one whole value. Raises EvidenceError where it is torn or larger than :data:`LARGEST`."""
        self.next_character()
        while True:
            try:
                value, end = _DECODER.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                if not self._more():
                    raise self._torn("a JSON value", error.msg) from error
                continue
            # "1." or "1e" at the end of a piece is the beginning of a number, and reads as 1.
            if self._text[end : end + 1] in _DELIMITERS or not self._more():
                self._at = end
                return value

    def end(self) -> None:
        """Raises EvidenceError where anything but white space is left."""
        if found := self.next_character():
            raise self._torn("the end of the file", found)

    def _more(self) -> bool:
        """Another piece of the file behind what is not taken yet; False at its end."""
        if self._ended:
            return False
        if len(self._text) - self._at > LARGEST:
            raise self._torn(f"values of at most {LARGEST} characters", "a larger one")
        piece = self._file.read(CHUNK)
        self._ended = not piece
        self._text, self._at = self._text[self._at :] + piece, 0
        return bool(piece)

    def _torn(self, expected: str, found: str) -> EvidenceError:
        return EvidenceError(
            "a trace is no whole JSON object",
            where=self._name,
            expected=expected,
            found=found,
            next_step="measure the window again: a profiler that is cut off leaves a torn file",
        )


def members(reader: Reader, array: str) -> Iterator[tuple[str, Any]]:
    """(name, value) of each member of the object; of the member ``array`` one pair for each item.

    Raises EvidenceError for anything that is no whole JSON object with that array in it.
    """
    reader.take("{")
    if reader.next_character() == "}":
        reader.take("}")
        reader.end()
        return
    while True:
        name = reader.value()
        reader.take(":")
        if name == array:
            for item in _items(reader):
                yield name, item
        else:
            yield name, reader.value()
        if reader.take(",}") == "}":
            reader.end()
            return


def _items(reader: Reader) -> Iterator[Any]:
    reader.take("[")
    if reader.next_character() == "]":
        reader.take("]")
        return
    while True:
        yield reader.value()
        if reader.take(",]") == "]":
            return
