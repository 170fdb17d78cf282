"""Codes and scales that cannot be: bytes that nobody wrote, and numbers that no quantiser gives.

Zeros under a coded module are what a download leaves that took the room first and did not finish. Where the file still
has a hole the file system says so; a copy of that file is written zeros, and reads like any other.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np

from recipe.headers import Entry, Fault, Header, PackError
from recipe.payload import unwritten

_NO_CHANCE = 64
"""Bytes of codes that are not zero by chance."""
_FETCH = "fetch the file again: its download took the room and did not finish"


def holes(headers: Iterable[Header]) -> Iterator[PackError]:
    """Codes that nobody wrote. Plain weights may be zero, and copies of zeros may be holes; codes never are."""
    for header in headers:
        for start, stop in unwritten(header.file):
            for entry in header.entries:
                missing = min(stop, entry.stop) - max(start, entry.start)
                if entry.name.endswith(".trellis") and missing >= min(_NO_CHANCE, entry.nbytes):
                    yield PackError(
                        Fault.UNWRITTEN,
                        "codes were never written: the file has a hole there",
                        where=f"{header.file} {entry.name}",
                        expected=f"{entry.nbytes} bytes",
                        found=f"{missing} bytes of nothing",
                        next_step=_FETCH,
                    )


def blanks(modules: Iterable[str], tensors: Mapping[str, Entry]) -> Iterator[PackError]:
    """Written zeros at the beginning, middle or end of a module's codes, and scales that are all zero or not finite.

    Whole codes are not read: what stops a download leaves everything behind it blank, or pieces larger than a module.
    """
    opened: dict[Path, int] = {}
    try:
        for name in modules:
            codes = tensors[f"{name}.trellis"]
            descriptor = _opened(opened, codes.file)
            length = min(_NO_CHANCE, codes.nbytes)
            for place in {codes.start, codes.start + (codes.nbytes - length) // 2, codes.stop - length}:
                if length and not any(os.pread(descriptor, length, place)):
                    yield _blank(Fault.UNWRITTEN, "codes are blank", codes, f"{length} zeros from byte {place}", _FETCH)
                    break
            zero = []
            for entry in (tensors[f"{name}.{part}"] for part in ("suh", "svh")):
                values = np.frombuffer(os.pread(_opened(opened, entry.file), entry.nbytes, entry.start), np.float16)
                if values.size and not values.any():
                    zero.append(entry)
                if not np.isfinite(values).all():
                    told = f"{np.count_nonzero(~np.isfinite(values))} values that are no numbers"
                    yield _blank(Fault.MODULE, "scales are not finite", entry, told, "code the module again")
            if len(zero) == 1:  # a quantiser gives a matrix of zeros two scales of zeros, and codes all the same
                yield _blank(Fault.UNWRITTEN, "scales are blank", zero[0], "zeros alone", _FETCH)
    finally:
        for descriptor in opened.values():
            os.close(descriptor)


def _opened(opened: dict[Path, int], file: Path) -> int:
    if file not in opened:
        opened[file] = os.open(file, os.O_RDONLY)
    return opened[file]


def _blank(fault: Fault, what: str, entry: Entry, found: str, next_step: str) -> PackError:
    where, expected = f"{entry.file} {entry.name}", f"what a quantiser writes into {entry.nbytes} bytes"
    return PackError(fault, what, where=where, expected=expected, found=found, next_step=next_step)
