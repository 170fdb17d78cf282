"""Folders that appear whole or not at all: built under a hidden name beside, put on disk, then renamed."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from runner.errors import StateError


def partial(folder: Path) -> Path:
    """Where ``folder`` is built before it takes its name: a hidden neighbour, so that renaming stays on one disk.

    StateError where the name is taken, so that nobody works for hours first.
    """
    _refuse_taken(folder)
    return folder.with_name(f".{folder.name}.partial")


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
    """An empty folder to build in."""
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    return folder
