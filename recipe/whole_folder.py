"""Folders that appear whole or not at all: built under a hidden name beside, put on disk, then renamed."""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from runner.errors import StateError

MARKER = ".carve-building"
"""In the hidden neighbour of a folder: this project builds there, and may go on or clear away."""
PATIENCE_SECONDS = 15.0
"""For who holds a folder: what a killed process has started inherits its hold for as long as that takes to start."""
_POLL_SECONDS = 0.05
_INSIDE = "whole"
"""What is built, inside the hidden neighbour; notes of an unfinished work lie beside it and never in it."""


@contextmanager
def building(folder: Path) -> Iterator[Path]:
    """Where to build ``folder``, held (:func:`alone`) until it is published or left for a later attempt.

    It is inside the hidden neighbour, so that renaming stays on one disk; the parent of what is yielded is for notes of
    the unfinished work. StateError where the name is taken, so that nobody works for hours first, and where something
    that is not ours lies in the place.
    """
    refuse_taken(folder)
    place = _beside(folder)
    if place.is_symlink():
        raise _foreign(place, "a link")
    if place.exists() and not place.is_dir():
        raise _foreign(place, "a file")
    place.mkdir(parents=True, exist_ok=True)
    with alone(place):
        # Only who holds it may judge: another would meet a folder that is just being cleared away.
        marker = place / MARKER
        if any(place.iterdir()) and (marker.is_symlink() or not marker.is_file()):
            raise _foreign(place, "a folder of something else")
        try:
            refuse_taken(folder)  # another may have published between the first look and the hold
            marker.touch()
            (place / _INSIDE).mkdir(exist_ok=True)
            yield place / _INSIDE
        finally:
            with suppress(OSError):  # it bears its name already, or keeps what a later attempt goes on with
                (place / _INSIDE).rmdir()
            if not (place / _INSIDE).exists():
                _clear(place)


@contextmanager
def anew(folder: Path) -> Iterator[Path]:
    """An empty folder to fill, which becomes ``folder`` when the block ends; what a killed attempt left is cleared.

    Nothing stays of a block that fails. StateError as :func:`building`.
    """
    with building(folder) as place:
        try:
            yield fresh(place)
            publish(place, folder)
        finally:
            shutil.rmtree(place, ignore_errors=True)


def tidy(folder: Path) -> None:
    """Clear away what a work that was killed after it published ``folder`` left beside it."""
    place = _beside(folder)
    if place.is_symlink() or not (place / MARKER).is_file() or (place / _INSIDE).exists():
        return
    with suppress(StateError), alone(place, patience=0):  # who holds it clears away himself
        _clear(place)


def _beside(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.partial")


def _foreign(place: Path, found: str) -> StateError:
    return StateError(
        "something else lies where the product would be built",
        where=str(place),
        expected=f"nothing, an empty folder, or one with {MARKER}",
        found=found,
        next_step="move it away, or choose another name for the product",
    )


def _clear(place: Path) -> None:
    """Remove an unfinished folder; its marker goes last, so that what a kill leaves is still known as ours."""
    with suppress(OSError):
        for path in place.iterdir():
            if path.name != MARKER:
                _remove(path)
        (place / MARKER).unlink(missing_ok=True)
        place.rmdir()


@contextmanager
def alone(folder: Path, patience: float | None = None) -> Iterator[None]:
    """Hold an existing folder for this process alone; the hold ends with the process, however that ends.

    StateError where another process holds it for longer than ``patience`` seconds (:data:`PATIENCE_SECONDS`), or has
    just cleared it away.
    """
    busy = StateError(
        "another process is at work here",
        where=str(folder),
        expected="one at a time",
        next_step="wait until it has ended, then run again",
    )
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        raise busy from None
    try:
        if not _held(descriptor, folder, PATIENCE_SECONDS if patience is None else patience):
            raise busy
        yield
    finally:
        os.close(descriptor)


def _held(descriptor: int, folder: Path, patience: float) -> bool:
    """Whether the open folder is within ``patience`` seconds this process's, and still stands under its name."""
    deadline = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return os.path.samestat(folder.stat(), os.fstat(descriptor))
        except FileNotFoundError:
            return False
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_SECONDS)


def publish(built: Path, folder: Path) -> None:
    """Give a finished folder its name; StateError where something already bears it."""
    refuse_taken(folder)
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


def refuse_taken(folder: Path) -> None:
    """StateError where something bears the name already."""
    if folder.exists() or folder.is_symlink():
        raise StateError(
            "the folder exists already",
            where=str(folder),
            expected="a name that is free",
            found="a file or folder",
            next_step="choose another name or remove what bears it",
        )


def fresh(folder: Path) -> Path:
    """An empty folder to build in: what lay there goes, the folder itself stays whose hold it is.

    StateError for a link, whose folder is somebody else's.
    """
    if folder.is_symlink():
        raise StateError(
            "a link stands where a folder is built",
            where=str(folder),
            expected="a folder",
            found=str(folder.readlink()),
            next_step="remove the link",
        )
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.iterdir():
        _remove(path)
    return folder


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
