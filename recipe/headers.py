"""Headers of safetensors files, checked against the files they describe, and the faults of a pack.

A file begins with the length of its header (eight bytes, little-endian), then the header, a JSON object from tensor
name to type, shape and place, then the data without a gap. Source: the safetensors documentation.
"""

from __future__ import annotations

import json
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

_MAX_HEADER = 100_000_000  # the limit of the safetensors library
_SIZES = {"BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "U16": 2, "I16": 2, "F16": 2, "BF16": 2}
_SIZES |= {"U32": 4, "I32": 4, "F32": 4, "U64": 8, "I64": 8, "F64": 8}
_NUMPY = {"BOOL": "?", "U8": "u1", "I8": "i1", "U16": "<u2", "I16": "<i2", "F16": "<f2", "BF16": "<u2"}
_NUMPY |= {"U32": "<u4", "I32": "<i4", "F32": "<f4", "U64": "<u8", "I64": "<i8", "F64": "<f8"}


class Fault(StrEnum):
    """Ways in which a pack is broken."""

    MISSING = "missing"
    LFS_POINTER = "lfs-pointer"
    TRUNCATED = "truncated"
    HOLE = "hole"
    OVERLAP = "overlap"
    MALFORMED = "malformed"
    LINK = "link"
    INDEX = "index"
    MODULE = "module"
    CONFIGURATION = "configuration"


class PackError(InputError):
    """A fault of a pack, with its kind."""

    def __init__(self, fault: Fault, what: str, *, where: str, expected: str, found: str, next_step: str = "") -> None:
        super().__init__(what, where=where, expected=expected, found=found, next_step=next_step)
        self.fault = fault


@dataclass(frozen=True)
class Entry:
    """A tensor as a header describes it."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: Path
    start: int
    """First byte in the file."""
    stop: int
    """Byte after the last in the file."""

    def read(self) -> NDArray[Any]:
        """The tensor; bfloat16, which numpy lacks, comes as float32."""
        if self.dtype not in _NUMPY:
            raise InputError("numpy has no such type", where=f"{self.file} {self.name}", found=self.dtype)
        kind = np.dtype(_NUMPY[self.dtype])
        array = np.fromfile(self.file, kind, (self.stop - self.start) // kind.itemsize, offset=self.start)
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


def read_header(file: Path) -> Header:
    """The header of a safetensors file, checked against the file's size; PackError where they do not fit."""
    text, data = _header_text(file)

    def broken(fault: Fault, what: str, expected: str, found: str) -> PackError:
        return PackError(fault, what, where=str(file), expected=expected, found=found)

    try:
        described = json.loads(text, object_pairs_hook=_unique)
    except ValueError as error:
        raise broken(Fault.MALFORMED, "header is not JSON", "an object with each name once", str(error)) from error
    if not isinstance(described, dict):
        raise broken(Fault.MALFORMED, "header is not an object", "an object", type(described).__name__)
    entries = [_entry(file, name, value, data) for name, value in described.items() if name != "__metadata__"]
    entries.sort(key=lambda entry: (entry.start, entry.stop))
    at, size = data, file.stat().st_size
    for entry in entries:
        if entry.start != at:
            fault = Fault.HOLE if entry.start > at else Fault.OVERLAP
            raise broken(fault, f"{fault.value} before {entry.name}", f"data from byte {at}", f"from {entry.start}")
        at = entry.stop
    if at > size:
        raise broken(Fault.TRUNCATED, "file is truncated", f"{at} bytes", f"{size}")
    if at < size:
        raise broken(Fault.HOLE, "bytes after the last tensor", f"{at} bytes", f"{size}")
    return Header(file, sha256_bytes(text), tuple(entries))


def _header_text(file: Path) -> tuple[bytes, int]:
    """The header's bytes and the place where data begins."""

    def broken(fault: Fault, what: str, expected: str, found: str, next_step: str = "") -> PackError:
        return PackError(fault, what, where=str(file), expected=expected, found=found, next_step=next_step)

    if not file.is_file():
        raise broken(Fault.MISSING, "file is missing", "a safetensors file", "none")
    size = file.stat().st_size
    with file.open("rb") as stream:
        start = stream.read(len(LFS_POINTER))
        if start == LFS_POINTER:
            fetch = "fetch the file itself, for example with `git lfs pull`"
            raise broken(
                Fault.LFS_POINTER, "Git LFS pointer instead of weights", "a safetensors file", "a pointer", fetch
            )
        length = int.from_bytes(start[:8], "little")
        if size < 8 or (length <= _MAX_HEADER and 8 + length > size):
            raise broken(Fault.TRUNCATED, "file is truncated", f"at least {8 + length} bytes", str(size))
        if length > _MAX_HEADER:
            raise broken(
                Fault.MALFORMED, "not a safetensors file", f"a header of at most {_MAX_HEADER} bytes", str(length)
            )
        stream.seek(8)
        return stream.read(length), 8 + length


def _entry(file: Path, name: str, value: object, data: int) -> Entry:
    def broken(expected: str, found: object) -> PackError:
        return PackError(
            Fault.MALFORMED, "malformed tensor description", where=f"{file} {name}", expected=expected, found=str(found)
        )

    if not isinstance(value, dict) or set(value) != {"dtype", "shape", "data_offsets"}:
        raise broken("dtype, shape and data_offsets", value)
    dtype, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
    if dtype not in _SIZES:
        raise broken(f"one of {', '.join(_SIZES)}", dtype)
    if not _whole_numbers(shape):
        raise broken("a shape of whole numbers", shape)
    if not _whole_numbers(offsets) or len(offsets) != 2:
        raise broken("two offsets", offsets)
    size = _SIZES[dtype] * int(np.prod([1, *shape], dtype=object))
    if offsets[1] - offsets[0] != size:
        raise broken(f"{size} bytes for {dtype} {shape}", f"{offsets[1] - offsets[0]} bytes")
    return Entry(name, dtype, tuple(shape), file, data + offsets[0], data + offsets[1])


def _whole_numbers(value: object) -> bool:
    return isinstance(value, list) and all(type(item) is int and item >= 0 for item in value)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    repeated = [name for name, count in Counter(name for name, _ in pairs).items() if count > 1]
    if repeated:
        raise ValueError(f"repeated names: {repeated[:3]}")
    return dict(pairs)
