"""Digests of large files: several at once, and no file twice when a long reading is interrupted."""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from recipe.closure import json_object
from runner.files import write_whole

CHUNK = 4 << 20
"""Bytes read at once: large enough that hashing runs outside the interpreter's lock nearly all the time."""
READERS = 2
"""Files read at once. One core hashes slower than a fast disk reads; more readers make a slow one seek."""


def file_digests(files: Sequence[Path], kept: Path | None = None) -> dict[str, str]:
    """SHA-256 of each file by its name.

    ``kept`` is a file in which finished digests are noted with the size, times and inode they were read at, so that
    the same call after an interruption reads only the rest. Raises StateError where it cannot be written.
    """
    known = _read(kept)
    found: dict[str, str] = {}
    with ThreadPoolExecutor(READERS) as pool:
        fresh = {}
        for file in files:
            mark = identity(file)
            if known.get(file.name, {}).get("identity") == mark:
                found[file.name] = known[file.name]["digest"]
            else:
                fresh[file.name] = (mark, pool.submit(sha256_of, file))
        for name, (mark, digest) in fresh.items():
            found[name] = digest.result()
            known[name] = {"identity": mark, "digest": found[name]}
            if kept is not None:
                write_whole(kept, json.dumps(known).encode())
    return {file.name: found[file.name] for file in files}


def _read(kept: Path | None) -> dict[str, dict[str, str]]:
    if kept is None or not kept.is_file():
        return {}
    noted = json_object(kept.read_bytes()) or {}  # damaged notes cost a second reading and no more
    return {name: one for name, one in noted.items() if isinstance(one, dict) and one.keys() == {"identity", "digest"}}


def identity(file: Path, *, shared: bool = False) -> str:
    """Device, inode, size and times of change: any write to the file moves the last one.

    So does another name of the same file; of a ``shared`` file, which gets and loses such names, it is left out.
    """
    stat = file.stat()
    mark = f"{stat.st_dev}:{stat.st_ino}:{stat.st_size}:{stat.st_mtime_ns}"
    return mark if shared else f"{mark}:{stat.st_ctime_ns}"


def sha256_of(file: Path, then: Callable[[memoryview], object] | None = None) -> str:
    """SHA-256 of a file read once from start to end; ``then`` sees every chunk in order."""
    state, buffer = hashlib.sha256(), memoryview(bytearray(CHUNK))
    with file.open("rb", buffering=0) as stream:
        os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
        while count := stream.readinto(buffer):
            state.update(buffer[:count])
            if then is not None:
                then(buffer[:count])
    return state.hexdigest()


def unwritten(file: Path) -> Iterator[tuple[int, int]]:
    """Where nothing was ever written, first byte and byte after the last; nothing where the file system does not say.

    Such a file is what a download leaves that asked for the room first and did not finish.
    """
    with file.open("rb", buffering=0) as stream:
        start, size = 0, os.fstat(stream.fileno()).st_size
        while (start := _seek(stream.fileno(), start, os.SEEK_HOLE, size)) < size:
            stop = _seek(stream.fileno(), start, os.SEEK_DATA, size)
            yield start, stop
            start = stop


def _seek(descriptor: int, start: int, what: int, end: int) -> int:
    """The next hole or the next data from ``start`` on; ``end`` where there is none, or nobody says."""
    try:
        return min(os.lseek(descriptor, start, what), end)
    except OSError as error:
        if error.errno not in (errno.ENXIO, errno.EINVAL, errno.EOPNOTSUPP):
            raise
        return end
