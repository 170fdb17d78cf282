"""Files that appear whole or not at all, and files of others that are read with care."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path

from runner.errors import InputError, StateError


def write_whole(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Write ``data`` beside ``path``, fsync, rename over it, fsync the folder. Raises StateError."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        draft.replace(path)
        _sync_folder(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise StateError(
            "a file could not be written",
            where=str(path),
            found=error.strerror or str(error),
            next_step="free the disk, or name a file in a folder that can be written to",
        ) from error


def require_place(path: Path, what: str) -> None:
    """Raises InputError where ``path`` that a person gave cannot be made: no folder is made that nobody named."""
    if path.is_dir():
        found = "a folder"
    elif not path.parent.is_dir():
        found = f"no folder {path.parent}"
    else:
        return
    raise InputError(f"no place for {what}", where=str(path), expected="a file in a folder that exists", found=found)


def read_plain(path: Path, limit: int, *, links: bool = True) -> bytes:
    """The bytes of a plain file that somebody else may have put there.

    Raises OSError for a pipe, a folder or a device, for more than ``limit`` bytes, and without ``links`` for a link.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | (0 if links else os.O_NOFOLLOW))
    with os.fdopen(descriptor, "rb") as stream:
        known = os.fstat(descriptor)
        if not stat.S_ISREG(known.st_mode):
            raise OSError(errno.EINVAL, "not a plain file")
        data = stream.read(min(known.st_size, limit) + 1)  # no room for the limit where the file is small
        if len(data) == known.st_size + 1:
            raise OSError(errno.EBUSY, "somebody is writing to it")
    if len(data) > limit:
        raise OSError(errno.EFBIG, f"more than {limit} bytes")
    return data


def append_line(path: Path, line: bytes) -> None:
    """Append one line and fsync it. Raises StateError."""
    try:
        with path.open("ab") as stream:
            stream.write(line + b"\n")
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        raise StateError(
            "the journal cannot be written", where=str(path), found=error.strerror or str(error)
        ) from error


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
