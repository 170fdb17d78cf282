"""Write one safetensors file from streams: memory holds a chunk, never a tensor.

The library writes from tensors in memory; this writes from readers of bytes, with the same order of tensors (larger
element types first, then by name), so that every tensor is aligned to its type.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from recipe.headers import ELEMENT_BYTES
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


def in_order(parts: Sequence[Part]) -> list[Part]:
    """The order in which the parts stand in a file."""
    return sorted(parts, key=lambda part: (-ELEMENT_BYTES[part.dtype], part.name))


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
    with draft.open("xb", buffering=0) as stream:

        def put(data: bytes | memoryview) -> None:
            view = memoryview(data)
            while view:
                view = view[stream.write(view) :]

        fill(put)
        os.fsync(stream.fileno())
    draft.chmod(0o644)
    draft.replace(path)
