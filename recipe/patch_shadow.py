"""A shadow of a distribution: a folder with the patched packages, which leaves the distribution alone.

Real folders and files where something is patched, links to the distribution elsewhere. It comes first on a seat's
``PYTHONPATH``, appears all at once and is never half there; two seats with different patches run side by side.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from recipe import whole_folder
from recipe.patch_check import compile_all, import_check
from recipe.patch_set import PatchSet
from runner.digest import sha256_bytes
from runner.errors import InputError, StateError


def shadow(
    site: Path,
    patches: PatchSet,
    destination: Path,
    python: str | None = sys.executable,
    notes: Mapping[str, bytes] | None = None,
) -> Path:
    """Make, or find complete, the shadow of ``site`` in ``destination``, with ``notes`` (name to content) beside it.

    ``python`` imports the patched modules; None compiles them only. Raises InputError for a drifted file, an anchor
    that is not unique and a result that does not compile or import, StateError for a destination that holds something
    else.
    """
    contents = {file: patches.compose(file, read_file(site, file)) for file in patches.files}
    if destination.exists():
        _verify_shadow(site, contents | dict(notes or {}), destination)
        whole_folder.tidy(destination)
        return destination
    compile_all(contents)
    try:
        with whole_folder.building(destination) as partial:
            try:
                whole_folder.fresh(partial)
                build(site, contents, partial)
                if python:
                    import_check(python, partial, patches, site)
                for name, content in (notes or {}).items():
                    (partial / name).write_bytes(content)
                whole_folder.publish(partial, destination)
            finally:
                shutil.rmtree(partial, ignore_errors=True)
    except OSError as error:
        raise _disk(destination, error) from error
    return destination


def build(site: Path, contents: Mapping[str, bytes], folder: Path) -> None:
    """Fill ``folder`` with ``contents`` (file of ``site`` to its patched bytes) and links to their neighbours."""
    real = {Path(parent) for file in contents for parent in Path(file).parents}
    for place in sorted(real, key=lambda path: len(path.parts)):
        (folder / place).mkdir(exist_ok=True)
        if place != Path():
            for entry in sorted((site / place).iterdir()):
                inside = place / entry.name
                if entry.name != "__pycache__" and inside not in real and inside.as_posix() not in contents:
                    (folder / inside).symlink_to(entry.resolve())
    for file, content in contents.items():
        (folder / file).write_bytes(content)
        (folder / file).chmod((site / file).stat().st_mode & 0o777)
    packages = {Path(file).parts[0] for file in contents}
    for record in site.glob("*.dist-info/RECORD"):
        if any(f"\n{package}/__init__.py," in f"\n{record.read_text()}" for package in packages):
            (folder / record.parent.name).symlink_to(record.parent.resolve())


def _verify_shadow(site: Path, contents: dict[str, bytes], destination: Path) -> None:
    for file, content in contents.items():
        path = destination / file
        found = sha256_bytes(path.read_bytes()) if path.is_file() else "no file"
        if found != sha256_bytes(content):
            raise _taken(destination, file, sha256_bytes(content), found)
    for path in destination.rglob("*"):
        if path.is_symlink() and not path.exists():
            raise _taken(destination, str(path.relative_to(destination)), f"a file of {site}", "a dead link")


def _taken(destination: Path, file: str, expected: str, found: str) -> StateError:
    return StateError(
        "the shadow is not what these patches give",
        where=f"{destination}: {file}",
        expected=expected,
        found=found,
        next_step="remove the folder and run the patch again",
    )


def remove_shadow(destination: Path) -> None:
    """Forget a shadow; the distribution was never touched."""
    shutil.rmtree(destination, ignore_errors=True)


def _disk(where: Path, error: OSError) -> StateError:
    return StateError(
        "the patched files cannot be written",
        where=str(where),
        found=error.strerror or str(error),
        next_step="free the disk or make the folder writable",
    )


def read_file(site: Path, file: str) -> bytes:
    """Bytes of a distribution's file. InputError where there is none."""
    path = site / file
    if not path.is_file():
        raise InputError(
            "the file to patch is missing", where=str(path), expected="the distribution's file", found="none"
        )
    return path.read_bytes()
