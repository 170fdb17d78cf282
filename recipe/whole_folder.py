"""Folders that appear whole or not at all: built under a hidden name beside, put on disk, then renamed."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from runner.errors import StateError


def partial(folder: Path) -> Path:
    """Where ``folder`` is built before it takes its name: a hidden neighbour, so that renaming stays on one disk.

    StateError where the name is taken, so that nobody works for hours first.
    """
    _refuse_taken(folder)
    return folder.with_name(f".{folder.name}.partial")


@contextmanager
def building(folder: Path) -> Iterator[Path]:
    """:func:`partial`, held (:func:`alone`) until it is published or left for a later attempt."""
    place = partial(folder)
    place.mkdir(parents=True, exist_ok=True)
    with alone(place):
        try:
            _refuse_taken(folder)  # another may have published between the first look and the hold
            yield place
        finally:
            with suppress(OSError):  # it bears its name already, or keeps what a later attempt goes on with
                place.rmdir()


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Hold an existing folder for this process alone; the hold ends with the process, however that ends.

    StateError where another process holds it.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if not _held(descriptor, folder):
            raise StateError(
                "another process is at work here",
                where=str(folder),
                expected="one at a time",
                next_step="wait until it has ended, then run again",
            )
        yield
    finally:
        os.close(descriptor)


def _held(descriptor: int, folder: Path) -> bool:
    """Whether the open folder is now this process's, and still stands under its name."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(folder.stat(), os.fstat(descriptor))
    except (BlockingIOError, FileNotFoundError):
        return False


def publish(built: Path, folder: Path) -> None:
    """Give a finished folder its name; StateError where something already bears it."""
    _refuse_taken(folder)
    for file in sorted(built.rglob("*")):
        if file.is_file() and not file.is_symlink():
            sync(file)
    sync(built)
    built.replace(folder)
    sync(folder.parent)


def sync(path: Path) -> None:
    """Have a file or a folder's names on disk before anything that rests on them."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _refuse_taken(folder: Path) -> None:
    if folder.exists():
        raise StateError(
            "the folder exists already",
            where=str(folder),
            expected="a name that is free",
            found="a file or folder",
            next_step="choose another name or remove what bears it",
        )


def fresh(folder: Path) -> Path:
    """An empty folder to build in: what lay there goes, the folder itself stays whose hold it is."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    return folder
