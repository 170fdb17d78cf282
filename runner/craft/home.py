"""A session's own home: what the crew's entry copies into it from the caller's, and what nothing may show."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from stat import S_ISDIR, S_ISREG

from runner.errors import InputError
from runner.paths import config_home, state_home


def hidden_from(checkout: Path, workspace: Path) -> tuple[Path, ...]:
    """Folders that no session may see: the originals, and all that judges and signs."""
    return tuple(path.resolve() for path in (checkout, workspace, state_home(), config_home()))


def refuse_hidden(name: str, field: str, path: Path, hidden: Sequence[Path]) -> None:
    """Raises InputError where ``path``, links followed, is one of ``hidden``, inside one or above one."""
    shown = path.resolve()
    for one in hidden:
        if shown.is_relative_to(one) or one.is_relative_to(shown):
            raise InputError(
                "what the crew's entry names would show what has to stay hidden",
                where=f"{name}: {field}",
                expected="paths apart from checkout, workspace, state and keys",
                found=f"{path} beside {one}",
            )


def require_home(name: str, entries: Sequence[str], hidden: Sequence[Path]) -> None:
    """Raises InputError where an entry lies outside the caller's home, or shows what is hidden, also through a link."""
    for entry in entries:
        parts = PurePosixPath(entry).parts
        if not parts or parts[0] in ("/", "~") or ".." in parts:
            raise InputError(
                "a path that is not below the home folder",
                where=f"{name}: home",
                expected="a path below the home folder, such as .codex/auth.json",
                found=entry,
                next_step="write it without a leading / or ~; what is only read stands under readable",
            )
        source = Path.home() / entry
        refuse_hidden(name, "home", source, hidden)
        for link in _links(source):
            refuse_hidden(name, "home", link, hidden)


def _links(top: Path) -> list[Path]:
    """Every link below a folder, links to folders followed once each."""
    found, waiting, seen = [], [top], set()
    while waiting:
        folder = waiting.pop()
        if not folder.is_dir() or folder.resolve() in seen:
            continue
        seen.add(folder.resolve())
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_symlink():
                    found.append(Path(entry.path))
                if entry.is_dir():
                    waiting.append(Path(entry.path))
    return found


def furnish(home: Path, entries: Sequence[str]) -> None:
    """Copies of the caller's files in a fresh home. Links are followed; sockets, pipes and dead links stay away."""
    for entry in entries:
        source, target = Path.home() / entry, home / entry
        if source.is_dir():
            shutil.copytree(source, target, dirs_exist_ok=True, ignore=_left_out)
        elif source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)


def _left_out(folder: str, names: list[str]) -> set[str]:
    """What cannot be copied: no plain file or folder, or a link to a folder that it lies in."""
    here, left = Path(folder).resolve(), set()
    for name in names:
        path = Path(folder, name)
        try:
            mode = path.stat().st_mode
        except OSError:
            left.add(name)
            continue
        circular = path.is_symlink() and S_ISDIR(mode) and here.is_relative_to(path.resolve())
        if circular or not (S_ISDIR(mode) or S_ISREG(mode)):
            left.add(name)
    return left


__all__ = ["furnish", "hidden_from", "refuse_hidden", "require_home"]
