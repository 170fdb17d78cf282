"""Write one safetensors file from streams: memory holds a chunk, never a tensor.

The library writes from tensors in memory; this writes from readers of bytes, with the same order of tensors (larger
element types first, then by name), so that every tensor is aligned to its type.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import mmap
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from recipe.headers import ELEMENT_BYTES, Entry
from recipe.payload import CHUNK
from runner.errors import InputError

_ALIGNMENT = 8


@dataclass(frozen=True)
class Part:
    """One tensor to be written and where its bytes lie now."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: Path
    start: int
    """First byte in ``file``."""
    nbytes: int

    @classmethod
    def of(cls, entry: Entry) -> Part:
        """A tensor of another file, as it stands there."""
        return cls(entry.name, entry.dtype, entry.shape, entry.file, entry.start, entry.nbytes)


def in_order(parts: Sequence[Part]) -> list[Part]:
    """The order in which the parts stand in a file."""
    return sorted(parts, key=lambda part: (-ELEMENT_BYTES.get(part.dtype, 0), part.name))


def header_bytes(parts: Sequence[Part], metadata: dict[str, str]) -> bytes:
    """The beginning of a file with these parts in this order: length and header, padded with spaces."""
    described: dict[str, object] = {"__metadata__": metadata} if metadata else {}
    at = 0
    for part in parts:
        described[part.name] = {
            "dtype": part.dtype,
            "shape": list(part.shape),
            "data_offsets": [at, at + part.nbytes],
        }
        at += part.nbytes
    text = json.dumps(described, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    return len(text).to_bytes(8, "little") + text


def chunks(file: Path, start: int, nbytes: int) -> Iterator[memoryview]:
    """The bytes of a place in a file, a chunk at a time. Raises InputError where the file ends before."""
    buffer = memoryview(bytearray(min(CHUNK, max(nbytes, 1))))
    with file.open("rb", buffering=0) as stream:
        stream.seek(start)
        while nbytes:
            count = stream.readinto(buffer[: min(nbytes, len(buffer))])
            if not count:
                raise InputError(
                    "file ends inside a tensor", where=str(file), expected=f"{nbytes} bytes more", found="none"
                )
            yield buffer[:count]
            nbytes -= count


def digest_of(file: Path, start: int, nbytes: int) -> str:
    """SHA-256 of a place in a file."""
    state = hashlib.sha256()
    for chunk in chunks(file, start, nbytes):
        state.update(chunk)
    return state.hexdigest()


def same(one: Entry, other: Entry) -> bool:
    """Whether two tensors have one type, one shape and the same bytes, read a chunk at a time."""
    if (one.dtype, one.shape, one.nbytes) != (other.dtype, other.shape, other.nbytes):
        return False
    pairs = zip_longest(chunks(one.file, one.start, one.nbytes), chunks(other.file, other.start, other.nbytes))
    return all(mine == theirs for mine, theirs in pairs)


def write(
    path: Path, parts: Sequence[Part], metadata: dict[str, str], digested: Collection[str] = ()
) -> tuple[str, dict[str, str]]:
    """Write ``parts`` in order to ``path`` and return SHA-256 of the file and of each part named in ``digested``.

    The file appears under its name when it is complete and on disk. Raises OSError where it cannot be written.
    """
    whole, of_parts = hashlib.sha256(), {}

    def fill(put: Callable[[bytes | memoryview], object]) -> None:
        start = header_bytes(parts, metadata)
        whole.update(start)
        put(start)
        for part in parts:
            state = hashlib.sha256() if part.name in digested else None
            for chunk in chunks(part.file, part.start, part.nbytes):
                whole.update(chunk)
                if state is not None:
                    state.update(chunk)
                put(chunk)
            if state is not None:
                of_parts[part.name] = state.hexdigest()

    appear(path, fill)
    return whole.hexdigest(), of_parts


def appear(path: Path, fill: Callable[[Callable[[bytes | memoryview], object]], object]) -> None:
    """A new file that ``fill`` writes through the function it is given; ``path`` is taken only when it is on disk."""
    draft = path.with_name(f".{path.name}.partial")
    draft.unlink(missing_ok=True)
    out = _Straight(draft)
    try:
        fill(out.put)
        out.settle()
    finally:
        out.close()
    draft.chmod(0o644)
    draft.replace(path)


class _Straight:
    """A new file written past the kernel's cache, where the file system allows it.

    Nobody reads the bytes again soon, and copying them into the cache costs more than hashing them.
    """

    def __init__(self, path: Path) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        try:
            self._file = os.open(path, flags | os.O_DIRECT, 0o644)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            path.unlink(missing_ok=True)
            self._file = os.open(path, flags, 0o644)
        self._buffer = mmap.mmap(-1, CHUNK)  # aligned to pages, as such writes must be
        self._held = 0

    def put(self, data: bytes | memoryview) -> None:
        """Append."""
        view = memoryview(data)
        while view:
            count = min(len(view), CHUNK - self._held)
            self._buffer[self._held : self._held + count] = view[:count]
            self._held += count
            view = view[count:]
            if self._held == CHUNK:
                self._write(CHUNK)
                self._held = 0

    def settle(self) -> None:
        """Have everything on disk; the end, which is no whole page, goes through the cache."""
        self._through_cache()
        self._write(self._held)
        os.fsync(self._file)

    def close(self) -> None:
        os.close(self._file)

    def _write(self, count: int) -> None:
        with memoryview(self._buffer) as whole:
            at = 0
            while at < count:
                try:
                    at += os.write(self._file, whole[at:count])
                except OSError as error:
                    if error.errno != errno.EINVAL or not self._through_cache():
                        raise

    def _through_cache(self) -> bool:
        """Write as usual from here on; whether that is a change."""
        flags = fcntl.fcntl(self._file, fcntl.F_GETFL)
        fcntl.fcntl(self._file, fcntl.F_SETFL, flags & ~os.O_DIRECT)
        return bool(flags & os.O_DIRECT)
