"""Headers of safetensors files, checked against the files they describe, and the faults of a pack.

A file begins with the length of its header (eight bytes, little-endian), then the header, a JSON object from tensor
name to type, shape and place, then the data without a gap. Source: the safetensors documentation.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runner.digest import sha256_bytes
from runner.errors import InputError

LFS_POINTER = b"version https://git-lfs.github.com/spec/"
"""How a pointer of Git LFS begins, which stands for a file that was not fetched."""

FIRST_BYTES = 256
"""Enough of a file to know the length of its header, or a pointer with the size it promises."""

MAX_HEADER = 100_000_000
"""Most bytes of a header: the limit of the safetensors library."""
ELEMENT_BYTES = {"BOOL": 1, "U8": 1, "I8": 1, "U16": 2, "I16": 2, "F16": 2, "BF16": 2}
ELEMENT_BYTES |= {"U32": 4, "I32": 4, "F32": 4, "U64": 8, "I64": 8, "F64": 8}
ELEMENT_BYTES |= dict.fromkeys(("F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), 1) | {"C64": 8}
"""Bytes of an element, by the type's name in a header."""
_ELEMENT_BITS = {name: 8 * size for name, size in ELEMENT_BYTES.items()} | {"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6}
"""Bits of an element, of types too that no byte holds whole; a tensor of them fills whole bytes all the same."""
_NUMPY = {"BOOL": "?", "U8": "u1", "I8": "i1", "U16": "<u2", "I16": "<i2", "F16": "<f2", "BF16": "<u2"}
_NUMPY |= {"U32": "<u4", "I32": "<i4", "F32": "<f4", "U64": "<u8", "I64": "<i8", "F64": "<f8"}


class Fault(StrEnum):
    """Ways in which a pack is broken."""

    MISSING = "missing"
    LFS_POINTER = "lfs-pointer"
    TRUNCATED = "truncated"
    HOLE = "hole"
    OVERLAP = "overlap"
    UNWRITTEN = "unwritten"
    MALFORMED = "malformed"
    LINK = "link"
    INDEX = "index"
    AMBIGUOUS = "ambiguous"
    MODULE = "module"
    CONFIGURATION = "configuration"


class PackError(InputError):
    """A fault of a pack, with its kind."""

    def __init__(self, fault: Fault, what: str, *, where: str, expected: str, found: str, next_step: str = "") -> None:
        super().__init__(what, where=where, expected=expected, found=found, next_step=next_step)
        self.fault = fault


@dataclass(frozen=True, slots=True)
class Entry:
    """A tensor as a header describes it. A pack has a hundred thousand: see :func:`parse_header` on their memory."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: Path
    start: int
    """First byte in the file."""
    stop: int
    """Byte after the last in the file."""

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor."""
        return self.stop - self.start

    def read(self) -> NDArray[Any]:
        """The tensor; bfloat16, which numpy lacks, comes as float32."""
        if self.dtype not in _NUMPY:
            raise InputError("numpy has no such type", where=f"{self.file} {self.name}", found=self.dtype)
        kind = np.dtype(_NUMPY[self.dtype])
        count = self.nbytes // kind.itemsize
        array = np.fromfile(self.file, kind, count, offset=self.start)
        if array.size != count:
            raise PackError(
                Fault.TRUNCATED,
                "file ends inside a tensor",
                where=f"{self.file} {self.name}",
                expected=f"{self.nbytes} bytes",
                found=f"{array.nbytes}",
                next_step="it was longer when its header was read: find out who writes there",
            )
        if self.dtype == "BF16":
            array = (array.astype(np.uint32) << 16).view(np.float32)
        return array.reshape(self.shape)


@dataclass(frozen=True)
class Header:
    """The header of one safetensors file."""

    file: Path
    digest: str
    """SHA-256 of the header's bytes."""
    entries: tuple[Entry, ...]
    """In the order of their data."""
    metadata: dict[str, str]
    """The file's own notes (``__metadata__``)."""


def read_header(file: Path) -> Header:
    """The header of a safetensors file, checked against the file's size; PackError where they do not fit."""
    if not file.is_file():
        raise PackError(Fault.MISSING, "file is missing", where=str(file), expected="a safetensors file", found="none")
    size = file.stat().st_size
    with file.open("rb") as stream:
        length = header_length(stream.read(FIRST_BYTES), size, file)
        stream.seek(8)
        return parse_header(stream.read(length), size, file)


def header_length(start: bytes, size: int, file: Path) -> int:
    """Length of the header of a file of ``size`` bytes that begins with ``start`` (:data:`FIRST_BYTES`); PackError."""

    def broken(fault: Fault, what: str, expected: str, found: str, next_step: str = "") -> PackError:
        return PackError(fault, what, where=str(file), expected=expected, found=found, next_step=next_step)

    if start.startswith(LFS_POINTER):
        promised = re.search(rb"^size ([0-9]+)$", start, re.MULTILINE)
        expected = f"a safetensors file of {int(promised[1])} bytes" if promised else "a safetensors file"
        fetch = "fetch the file itself, for example with `git lfs pull`"
        raise broken(Fault.LFS_POINTER, "Git LFS pointer instead of weights", expected, "a pointer", fetch)
    length = int.from_bytes(start[:8], "little")
    if size < 8 or (length <= MAX_HEADER and 8 + length > size):
        raise broken(Fault.TRUNCATED, "file is truncated", f"at least {8 + length} bytes", str(size))
    if length > MAX_HEADER:
        raise broken(Fault.MALFORMED, "not a safetensors file", f"a header of at most {MAX_HEADER} bytes", str(length))
    return length


def parse_header(text: bytes, size: int, file: Path) -> Header:
    """The header with these bytes, of a file of ``size`` bytes that may lie elsewhere; PackError.

    Equal types and shapes are one object in memory.
    """

    def broken(fault: Fault, what: str, expected: str, found: str) -> PackError:
        return PackError(fault, what, where=str(file), expected=expected, found=found)

    try:
        described = json.loads(text.decode(), object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        raise broken(Fault.MALFORMED, "header is not JSON", "an object with each name once", str(error)) from error
    if not isinstance(described, dict):
        raise broken(Fault.MALFORMED, "header is not an object", "an object", type(described).__name__)
    data = 8 + len(text)
    metadata = described.pop("__metadata__", None)
    shapes: dict[tuple[int, ...], tuple[int, ...]] = {}
    entries = [_entry(file, name, described.pop(name), data, shapes) for name in list(described)]
    entries.sort(key=lambda entry: (entry.start, entry.stop))
    at = data
    for entry in entries:
        if entry.start != at:
            fault = Fault.HOLE if entry.start > at else Fault.OVERLAP
            raise broken(fault, f"{fault.value} before {entry.name}", f"data from byte {at}", f"from {entry.start}")
        at = entry.stop
    if at > size:
        raise broken(Fault.TRUNCATED, "file is truncated", f"{at} bytes", f"{size}")
    if at < size:
        raise broken(Fault.HOLE, "bytes after the last tensor", f"{at} bytes", f"{size}")
    metadata = {} if metadata is None else metadata
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise broken(Fault.MALFORMED, "malformed metadata", "text by name", str(metadata)[:80])
    return Header(file, sha256_bytes(text), tuple(entries), metadata)


def _entry(file: Path, name: str, value: object, data: int, shapes: dict[tuple[int, ...], tuple[int, ...]]) -> Entry:
    def broken(expected: str, found: object) -> PackError:
        return PackError(
            Fault.MALFORMED, "malformed tensor description", where=f"{file} {name}", expected=expected, found=str(found)
        )

    if not isinstance(value, dict) or set(value) != {"dtype", "shape", "data_offsets"}:
        raise broken("dtype, shape and data_offsets", value)
    dtype, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
    if not isinstance(dtype, str) or dtype not in _ELEMENT_BITS:
        raise broken(f"one of {', '.join(_ELEMENT_BITS)}", dtype)
    if not _whole_numbers(shape):
        raise broken("a shape of whole numbers", shape)
    if not _whole_numbers(offsets) or len(offsets) != 2:
        raise broken("two offsets", offsets)
    bits = _ELEMENT_BITS[dtype] * int(np.prod([1, *shape], dtype=object))
    size = bits // 8
    if bits % 8 or offsets[1] - offsets[0] != size:
        raise broken(f"{bits / 8:g} bytes for {dtype} {shape}", f"{offsets[1] - offsets[0]} bytes")
    sides = shapes.setdefault(tuple(shape), tuple(shape))
    return Entry(name, sys.intern(dtype), sides, file, data + offsets[0], data + offsets[1])


def _whole_numbers(value: object) -> bool:
    return isinstance(value, list) and all(type(item) is int and 0 <= item < 1 << 63 for item in value)


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """For JSON readers: the object of these pairs. ValueError for a name that stands twice or is no text."""
    repeated = [name for name, count in Counter(name for name, _ in pairs).items() if count > 1]
    if repeated:
        raise ValueError(f"repeated names: {repeated[:3]}")
    for text in (text for pair in pairs for text in pair if isinstance(text, str)):
        text.encode()  # half a character can be named by an escape, and written nowhere
    return dict(pairs)
