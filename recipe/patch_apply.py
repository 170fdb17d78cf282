"""Bring patches to a distribution's files: in place, or as a shadow beside it that leaves the distribution alone.

    python -m recipe.patch_apply shadow SITE_PACKAGES DESTINATION PATCH...
    python -m recipe.patch_apply apply|verify|revert SITE_PACKAGES PATCH...

A shadow is a folder that holds the patched packages: real folders and files where something is patched, links to the
distribution elsewhere. It comes first on a seat's ``PYTHONPATH``, appears all at once and is never half there; two
seats with different patches run side by side. In place is for images: each file is replaced at once, its pristine bytes
are kept under ``.carve-patches``, and after a kill ``apply`` or ``revert`` goes on where it was.

Before anything becomes visible, every Python file is compiled and every module that a patch names is imported by the
target's interpreter, which must find the markers in it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from recipe import whole_folder
from recipe.patch_set import MARKER, PatchSet, drifted, load_set, markers_in, ours
from runner.digest import sha256_bytes
from runner.errors import CarveError, InputError, StateError
from runner.files import write_whole
from runner.sandbox import Reach, available, confined

STORE = ".carve-patches"
"""Folder of pristine files, beside the packages."""

_IMPORT = f"""
import importlib, json, sys
found = {{}}
for name in json.loads(sys.argv[1]):
    module = importlib.import_module(name)
    found[name] = [module.__file__, list(getattr(module, {MARKER!r}, ()))]
print("\\n" + json.dumps(found))
"""
_IMPORT_SECONDS = 180
_PASSED = ("PATH", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "LANG", "VLLM_PLUGINS", "TORCHDYNAMO_DISABLE")
"""Of the environment, into a sandbox."""


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
    contents = {file: patches.compose(file, _read(site, file)) for file in patches.files}
    if destination.exists():
        _verify_shadow(site, contents | dict(notes or {}), destination)
        return destination
    _compile(contents)
    partial = whole_folder.partial(destination)
    try:
        whole_folder.fresh(partial)
        _build(site, contents, partial)
        if python:
            import_check(python, partial, patches, site)
        for name, content in (notes or {}).items():
            (partial / name).write_bytes(content)
        whole_folder.publish(partial, destination)
    except OSError as error:
        raise _disk(destination, error) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return destination


def _build(site: Path, contents: dict[str, bytes], folder: Path) -> None:
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


def apply(site: Path, patches: PatchSet, python: str | None = sys.executable) -> list[str]:
    """Patch in place; the files that changed (none when all were patched already).

    Raises what :func:`shadow` raises, and StateError for a marker of another version and for leftovers of another tool.
    Nothing is written before every file was found in order.
    """
    _leftovers(site, patches)
    pristine = {file: _pristine(site, patches, file) for file in patches.files}
    contents = {file: patches.compose(file, data) for file, data in pristine.items()}
    todo = [file for file, content in contents.items() if _read(site, file) != content]
    if not todo:
        return []
    _compile(contents)
    if python and patches.modules:
        with tempfile.TemporaryDirectory(prefix="carve-patch-") as folder:
            _build(site, contents, Path(folder))
            import_check(python, Path(folder), patches, site)
    for file in todo:
        kept = _kept(site, patches, file)
        if not kept.is_file():
            _clear_drafts(kept)
            write_whole(kept, pristine[file])
        _replace(site / file, contents[file])
    verify(site, patches)
    return todo


def revert(site: Path, patches: PatchSet) -> list[str]:
    """Give every file its pristine bytes back; the files that changed. StateError where they are not kept."""
    changed = []
    for file in patches.files:
        pristine = _pristine(site, patches, file)
        if _read(site, file) != pristine:
            _replace(site / file, pristine)
            changed.append(file)
        _kept(site, patches, file).unlink(missing_ok=True)
    store = site / STORE
    if store.is_dir() and not any(store.iterdir()):
        store.rmdir()
    return changed


def verify(site: Path, patches: PatchSet) -> None:
    """Every file is exactly what the patches give. InputError or StateError naming the first that is not."""
    _leftovers(site, patches)
    for file in patches.files:
        pristine = _pristine(site, patches, file)
        if (found := _read(site, file)) != patches.compose(file, pristine):
            what = "the file is not patched" if found == pristine else "the file is not what the patches give"
            raise InputError(
                what,
                where=str(site / file),
                expected=", ".join(patches.markers(file)),
                found=", ".join(markers_in(found)) or "no marker",
                next_step="run the patch again",
            )


def _pristine(site: Path, patches: PatchSet, file: str) -> bytes:
    """The distribution's own bytes of a file: in place, or kept from before. Refuses everything else."""
    data, wanted = _read(site, file), patches.before(file)
    if sha256_bytes(data) == wanted:
        return data
    kept = _kept(site, patches, file)
    if kept.is_file() and sha256_bytes(pristine := kept.read_bytes()) == wanted:
        if data == patches.compose(file, pristine):
            return pristine
        if not ours(markers_in(data), patches):
            raise drifted(str(site / file), wanted, sha256_bytes(data))
    markers = markers_in(data)
    if markers:
        raise StateError(
            "the file bears a stale marker",
            where=str(site / file),
            expected=", ".join(patches.markers(file)),
            found=", ".join(markers),
            next_step="revert with the patches that are named there, or install the distribution again",
        )
    raise drifted(str(site / file), wanted, sha256_bytes(data))


def _kept(site: Path, patches: PatchSet, file: str) -> Path:
    return site / STORE / patches.before(file)


def _read(site: Path, file: str) -> bytes:
    path = site / file
    if not path.is_file():
        raise InputError(
            "the file to patch is missing", where=str(path), expected="the distribution's file", found="none"
        )
    return path.read_bytes()


def _leftovers(site: Path, patches: PatchSet) -> None:
    """Rejected hunks and backups of another tool say that somebody else patches here too."""
    for file in patches.files:
        for suffix in (".rej", ".orig"):
            if (left := site / f"{file}{suffix}").exists():
                raise StateError(
                    "another tool left a failed patch",
                    where=str(left),
                    expected="none",
                    found="a rejected hunk or a backup",
                    next_step="install the distribution again",
                )


def _compile(contents: dict[str, bytes]) -> None:
    for file, content in contents.items():
        if file.endswith(".py"):
            try:
                compile(content, file, "exec", dont_inherit=True)
            except SyntaxError as error:
                raise InputError(
                    "the patched file does not compile", where=f"{file}:{error.lineno}", found=error.msg
                ) from error


def import_check(python: str, first: Path, patches: PatchSet, site: Path) -> None:
    """Import every module that a patch names, with ``first`` before ``site`` on the path; it must bear the markers.

    A patch is somebody's code, so it runs where it reaches nothing else, where there is a sandbox. Raises InputError
    with the interpreter's last words.
    """
    if not patches.modules:
        return
    command = [python, "-P", "-c", _IMPORT, json.dumps(list(patches.modules))]
    path = os.pathsep.join([str(first), os.environ.get("PYTHONPATH", "")])
    # Bytecode bears times: without it two shadows of the same patches are the same to the byte.
    environment = os.environ | {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    if available().tool != "none":
        own = (Path(python).parent,) if Path(python).is_absolute() else ()
        command = confined(command, Reach(reads=(first, site, *own), temporary=False), first)
        environment = {name: environment[name] for name in _PASSED if name in environment} | {"HOME": "/tmp"}
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=_IMPORT_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise InputError("the patched modules do not finish importing", found=f"{_IMPORT_SECONDS} s") from error
    if done.returncode:
        raise InputError(
            "a patched module does not import",
            where=", ".join(patches.modules),
            expected="exit code 0",
            found="\n    ".join(["", *done.stderr.strip().splitlines()[-4:]]),
        )
    found = json.loads(done.stdout.splitlines()[-1])
    for module, file in patches.modules.items():
        where, markers = found[module]
        if Path(where) != first / file or tuple(markers) != patches.markers(file):
            raise InputError(
                "Python imports another file than the patched one",
                where=module,
                expected=f"{first / file} with {', '.join(patches.markers(file))}",
                found=f"{where} with {', '.join(markers) or 'no marker'}",
            )


def _replace(path: Path, content: bytes) -> None:
    """New content under the old name, at once; compiled bytecode of the old content goes."""
    mode = path.stat().st_mode & 0o777
    _clear_drafts(path)
    write_whole(path, content, mode)
    for cached in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
        cached.unlink(missing_ok=True)


def _disk(where: Path, error: OSError) -> StateError:
    return StateError(
        "the patched files cannot be written",
        where=str(where),
        found=error.strerror or str(error),
        next_step="free the disk or make the folder writable",
    )


def _clear_drafts(path: Path) -> None:
    """What a killed attempt left beside a file that it was about to replace."""
    for draft in path.parent.glob(f".{path.name}.[0-9]*"):
        draft.unlink()


def remove_shadow(destination: Path) -> None:
    """Forget a shadow; the distribution was never touched."""
    shutil.rmtree(destination, ignore_errors=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["apply", "verify", "revert", "shadow"])
    parser.add_argument("site", type=Path)
    parser.add_argument("names", nargs="+", metavar="PATCH")
    parser.add_argument("--python", default=sys.executable, help="the interpreter that will run the engine")
    parser.add_argument("--no-import", action="store_true", help="compile only")
    arguments = parser.parse_args()
    python = None if arguments.no_import else arguments.python
    try:
        if arguments.action == "shadow":
            destination, *names = arguments.names
            print(shadow(arguments.site, load_set(names), Path(destination), python))
            return 0
        patches = load_set(arguments.names)
        if arguments.action == "apply":
            print("\n".join(apply(arguments.site, patches, python)) or "nothing to do")
        elif arguments.action == "revert":
            print("\n".join(revert(arguments.site, patches)) or "nothing to do")
        else:
            verify(arguments.site, patches)
    except CarveError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
