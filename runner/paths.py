"""Where things live. The workspace holds what is committed; state, configuration and cache lie with the user."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from runner.errors import InputError

RUNS = "runs"
"""Folder of all run folders below :func:`state_home`."""
KEYS = "keys"
"""Folder of all private keys below :func:`config_home`."""


def workspace(start: Path | None = None) -> Path:
    """The nearest folder at or above ``start`` (default: working directory) that holds ``orders`` and ``canon``.

    Raises InputError where there is none. ``CARVE_WORKSPACE`` overrides the search.
    """
    if found := workspace_around(start):
        return found
    raise InputError(
        "no workspace here",
        where=str((start or Path.cwd()).resolve()),
        expected="a folder with orders/ and canon/ at or above it",
        found="none",
        next_step="run `runner init` in an empty folder or change into a workspace",
    )


def workspace_around(start: Path | None = None) -> Path | None:
    """As :func:`workspace`, and None where there is none. Raises InputError for a ``CARVE_WORKSPACE`` that is none."""
    if named := os.environ.get("CARVE_WORKSPACE"):
        return named_workspace(Path(named), "CARVE_WORKSPACE")
    here = (start or Path.cwd()).resolve()
    return next((folder for folder in (here, *here.parents) if _is_workspace(folder)), None)


def named_workspace(folder: Path, by: str) -> Path:
    """The workspace that a person named by an option or a variable. Raises InputError for what is none."""
    if _is_workspace(folder):
        return folder.resolve()
    raise InputError(
        "not a workspace",
        where=f"{by}: {folder}",
        expected="a folder with orders/ and canon/ in it",
        found="a folder without them" if folder.is_dir() else "no folder",
        next_step="name the workspace's own folder; `runner init FOLDER` makes one",
    )


def _is_workspace(folder: Path) -> bool:
    return (folder / "orders").is_dir() and (folder / "canon").is_dir()


def source_root() -> Path:
    """The checkout this code runs from: graders, kernels and seats come from here."""
    return Path(__file__).resolve().parent.parent


def _home(variable: str, xdg: str, fallback: str) -> Path:
    if named := os.environ.get(variable):
        return Path(named).resolve()
    base = os.environ.get(xdg)
    return (Path(base) if base else Path.home() / fallback) / "dsv4-carve"


def state_home() -> Path:
    """Run folders (``runs/<run>``): evidence, journals, logs. ``CARVE_STATE`` overrides."""
    return _home("CARVE_STATE", "XDG_STATE_HOME", ".local/state")


def config_home() -> Path:
    """Private keys (mode 0600) and this user's own trust file. ``CARVE_CONFIG`` overrides."""
    return _home("CARVE_CONFIG", "XDG_CONFIG_HOME", ".config")


def cache_home() -> Path:
    """Built libraries and the engine's caches; safe to delete. ``CARVE_CACHE`` overrides."""
    return _home("CARVE_CACHE", "XDG_CACHE_HOME", ".cache")


def command(*words: object) -> str:
    """``runner`` with these words, as a shell reads them back."""
    return shlex.join(["runner", *map(str, words)])
