"""A shadow of a distribution: a folder with the patched packages, which leaves the distribution alone.

Real folders and files where something is patched, links to the distribution elsewhere. It comes first on a seat's
``PYTHONPATH``, appears all at once and is never half there; two seats with different patches run side by side.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from recipe import whole_folder
from recipe.closure import BYTECODE, is_bytecode
from recipe.patch_check import compile_all, import_check
from recipe.patch_set import PatchSet
from runner.digest import sha256_bytes, sha256_file
from runner.errors import InputError, StateError

_FOLDER = "a folder"


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
        _drop_bytecode(destination, contents)
        verify_shadow(site, contents, notes or {}, destination)
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
    for place in _folders(contents):
        (folder / place).mkdir(exist_ok=True)
    for name, target in _links(site, contents).items():
        (folder / name).symlink_to(target)
    for file, content in contents.items():
        (folder / file).write_bytes(content)
        (folder / file).chmod((site / file).stat().st_mode & 0o777)


def _folders(contents: Iterable[str]) -> list[Path]:
    """The real folders of a shadow, parents first."""
    return sorted({Path(parent) for file in contents for parent in Path(file).parents}, key=lambda p: len(p.parts))


def _links(site: Path, contents: Mapping[str, bytes]) -> dict[str, Path]:
    """The links of a shadow and where each leads."""
    real, found = set(_folders(contents)), {}
    for place in real - {Path()}:
        for entry in sorted((site / place).iterdir()):
            inside = place / entry.name
            if entry.name != BYTECODE and inside not in real and inside.as_posix() not in contents:
                found[inside.as_posix()] = entry.resolve()
    packages = {Path(file).parts[0] for file in contents}
    for record in site.glob("*.dist-info/RECORD"):
        if any(f"\n{package}/__init__.py," in f"\n{record.read_text()}" for package in packages):
            found[record.parent.name] = record.parent.resolve()
    return found


def _drop_bytecode(destination: Path, contents: Iterable[str]) -> None:
    """Remove what interpreters compiled beside the files of a shadow, and nothing elsewhere: the next compiles anew."""
    for place in _folders(contents):
        folder = destination / place
        own = place != Path() and folder.resolve() == destination.resolve() / place  # no link to another's folder
        if own and (folder / BYTECODE).exists() and is_bytecode(folder / BYTECODE):
            shutil.rmtree(folder / BYTECODE)


def verify_shadow(site: Path, contents: Mapping[str, bytes], notes: Mapping[str, bytes], destination: Path) -> None:
    """Every entry is the folder, file or link that it should be, and there is nothing more, bytecode neither.

    An interpreter runs bytecode without a look at the file that it is said to be of. Raises StateError.
    """
    wanted = {place.as_posix(): _FOLDER for place in _folders(contents) if place != Path()}
    wanted |= {name: f"a link to {target}" for name, target in _links(site, contents).items()}
    wanted |= {name: f"SHA-256 {sha256_bytes(content)}" for name, content in {**contents, **notes}.items()}
    found = dict(_entries(destination, destination))
    for name in sorted(wanted | found):
        if wanted.get(name) != found.get(name):
            raise _taken(destination, name, wanted.get(name, "nothing"), found.get(name, "nothing"))


def _entries(folder: Path, home: Path) -> Iterator[tuple[str, str]]:
    """What lies in a shadow, no link followed."""
    for path in sorted(folder.iterdir()):
        name = path.relative_to(home).as_posix()
        if path.is_symlink():
            yield name, f"a link to {path.readlink()}"
        elif path.is_dir():
            yield name, _FOLDER
            yield from _entries(path, home)
        elif path.is_file():
            yield name, f"SHA-256 {sha256_file(path)}"
        else:
            yield name, "neither file nor folder"


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
