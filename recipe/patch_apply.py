"""Bring patches to a distribution's files: in place, or as a shadow beside it that leaves the distribution alone.

    python -m recipe.patch_apply shadow SITE_PACKAGES DESTINATION PATCH...
    python -m recipe.patch_apply apply|verify|revert SITE_PACKAGES PATCH...

In place is for images: each file is replaced at once, its pristine bytes are kept under ``.carve-patches``, and after a
kill ``apply`` or ``revert`` goes on where it was. Nothing becomes visible before :mod:`recipe.patch_check` agreed.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from contextlib import AbstractContextManager
from pathlib import Path

from recipe import whole_folder
from recipe.bytecode import beside, instead_of
from recipe.disk import command
from recipe.patch_check import compile_all, import_check
from recipe.patch_set import PatchSet, drifted, load_set, markers_in, ours
from recipe.patch_shadow import build, read_file, shadow
from runner.digest import sha256_bytes, sha256_json
from runner.errors import InputError, StateError
from runner.files import write_whole

STORE = ".carve-patches"
"""Folder of pristine files, beside the packages."""


def apply(site: Path, patches: PatchSet, python: str | None = sys.executable) -> list[str]:
    """Patch in place; the files that changed (none when all were patched already).

    Raises what :func:`shadow` raises, and StateError for a marker of another version and for leftovers of another tool.
    Nothing is written before every file was found in order.
    """
    with _alone(site):
        return _apply(site, patches, python)


def _apply(site: Path, patches: PatchSet, python: str | None) -> list[str]:
    _leftovers(site, patches)
    pristine = {file: _pristine(site, patches, file) for file in patches.files}
    contents = {file: patches.compose(file, data) for file, data in pristine.items()}
    todo = [file for file, content in contents.items() if read_file(site, file) != content]
    for file in patches.files:
        _drop_bytecode(site / file)
    if not todo:
        return []
    compile_all(contents)
    if python and patches.modules:
        with tempfile.TemporaryDirectory(prefix="carve-patch-") as folder:
            build(site, contents, Path(folder))
            import_check(python, Path(folder), patches, site)
    for file in todo:
        kept = _kept(site, patches, file)
        if not kept.is_file():
            _clear_drafts(kept)
            write_whole(kept, pristine[file])
        _keep_link(site / file, kept)
        _replace(site / file, contents[file])
    verify(site, patches)
    return todo


def revert(site: Path, patches: PatchSet) -> list[str]:
    """Give every file its pristine bytes back; the files that changed. StateError where they are not kept.

    What was a link becomes one again, unless it leads to other bytes by now. Nothing is written before every file was
    found in order.
    """
    with _alone(site):
        return _revert(site, patches)


def _revert(site: Path, patches: PatchSet) -> list[str]:
    changed = []
    for file, pristine in {file: _pristine(site, patches, file) for file in patches.files}.items():
        kept = _kept(site, patches, file)
        if read_file(site, file) != pristine:
            if not _linked_again(site / file, kept, pristine):
                _replace(site / file, pristine)
            changed.append(file)
        for path in (_link_of(kept), kept):
            path.unlink(missing_ok=True)
    store = site / STORE
    if store.is_dir() and not any(store.iterdir()):
        store.rmdir()
    return changed


def verify(site: Path, patches: PatchSet) -> None:
    """Every file is exactly what the patches give. InputError or StateError naming the first that is not."""
    _leftovers(site, patches)
    for file in patches.files:
        pristine = _pristine(site, patches, file)
        if (found := read_file(site, file)) != patches.compose(file, pristine):
            what = "the file is not patched" if found == pristine else "the file is not what the patches give"
            raise InputError(
                what,
                where=str(site / file),
                expected=", ".join(patches.markers(file)),
                found=", ".join(markers_in(found)) or "no marker",
                next_step="run the patch again",
            )
        for other in instead_of(site / file) if file.endswith(".py") else ():
            raise StateError(
                "other code than the patched file's would run in its place",
                where=str(other),
                expected="no package or library of its name, and bytecode that the file compiles to",
                found="something else",
                next_step="remove it: nothing of the distribution needs it",
            )


def _alone(site: Path) -> AbstractContextManager[None]:
    """One process at a time writes below ``site``. InputError where it is no folder."""
    if not site.is_dir():
        raise InputError("no such folder", where=str(site), expected="site-packages", found="none")
    return whole_folder.alone(site)


def _pristine(site: Path, patches: PatchSet, file: str) -> bytes:
    """The distribution's own bytes of a file: in place, or kept from before. Refuses everything else."""
    data, wanted = read_file(site, file), patches.before(file)
    if sha256_bytes(data) == wanted:
        return data
    kept, markers = _kept(site, patches, file), markers_in(data)
    whole = kept.is_file() and sha256_bytes(kept.read_bytes()) == wanted
    if whole:
        composed = patches.compose(file, pristine := kept.read_bytes())
        if data == composed:
            return pristine
        if set(markers) == set(patches.markers(file)):
            raise StateError(
                "the patched file has drifted: something was written into it after it was patched",
                where=str(site / file),
                expected=f"SHA-256 {sha256_bytes(composed)}",
                found=sha256_bytes(data),
                next_step=f"save what was written, copy {kept} over the file (its own bytes), and patch it again",
            )
        if not ours(markers, patches):
            raise drifted(str(site / file), wanted, sha256_bytes(data))
    elif markers and set(markers) == set(patches.markers(file)):
        raise StateError(
            "the file is patched and its own bytes are gone",
            where=str(site / file),
            expected=f"the file that was patched, kept as {kept}",
            found="other bytes" if kept.is_file() else "nothing that has its digest",
            next_step="install the distribution again: that brings the file back, and it can be patched anew",
        )
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
    """Each file its own: two files with equal bytes are reverted one by one, perhaps of two patch sets."""
    return site / STORE / sha256_json([file, patches.before(file)])


def _leftovers(site: Path, patches: PatchSet) -> None:
    """Rejected hunks and backups of another tool say that somebody else patches here too.

    A folder that is a link out of ``site`` is another installation's: what is patched in place stays inside.
    """
    for file in patches.files:
        if not (site / file).parent.resolve().is_relative_to(site.resolve()):
            raise StateError(
                "the folder to patch is a link out of the installation",
                where=str((site / file).parent),
                expected=f"a folder in {site}",
                found=str((site / file).parent.resolve()),
                next_step="patch the installation that it leads to, or use a shadow",
            )
        for suffix in (".rej", ".orig"):
            if (left := site / f"{file}{suffix}").exists():
                raise StateError(
                    "another tool left a failed patch",
                    where=str(left),
                    expected="none",
                    found="a rejected hunk or a backup",
                    next_step="install the distribution again",
                )


def _replace(path: Path, content: bytes) -> None:
    """New content under the old name, at once; compiled bytecode of the old content goes."""
    mode = path.stat().st_mode & 0o777
    _clear_drafts(path)
    write_whole(path, content, mode)
    _drop_bytecode(path)


def _drop_bytecode(path: Path) -> None:
    for cached in beside(path):
        cached.unlink(missing_ok=True)


def _link_of(kept: Path) -> Path:
    """Beside the kept bytes of a file that was a link, as stores of packages make them: a link that says the same."""
    return kept.with_name(f"{kept.name}.link")


def _keep_link(path: Path, kept: Path) -> None:
    """Before a pristine file is replaced."""
    _link_of(kept).unlink(missing_ok=True)
    if path.is_symlink():
        _link_of(kept).symlink_to(path.readlink())


def _linked_again(path: Path, kept: Path, pristine: bytes) -> bool:
    """Whether ``path`` was a link and is one again; not where it would no longer lead to the ``pristine`` bytes."""
    if not _link_of(kept).is_symlink():
        return False
    _clear_drafts(path)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.symlink_to(_link_of(kept).readlink())
    if not draft.is_file() or draft.read_bytes() != pristine:
        draft.unlink()
        return False
    draft.replace(path)
    whole_folder.sync(path.parent)
    _drop_bytecode(path)
    return True


def _clear_drafts(path: Path) -> None:
    """What a killed attempt left beside a file that it was about to replace."""
    for draft in path.parent.glob(f".{path.name}.[0-9]*"):
        draft.unlink()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["apply", "verify", "revert", "shadow"])
    parser.add_argument("site", type=Path)
    parser.add_argument("names", nargs="+", metavar="PATCH")
    parser.add_argument("--python", default=sys.executable, help="the interpreter that will run the engine")
    parser.add_argument("--no-import", action="store_true", help="compile only")
    arguments = parser.parse_args()
    site, python = arguments.site.absolute(), None if arguments.no_import else arguments.python
    if arguments.action == "shadow":
        destination, *names = arguments.names
        if not names or not destination:
            parser.error("shadow needs a destination and at least one patch")
        print(shadow(site, load_set(names), Path(destination).absolute(), python))
        return
    patches = load_set(arguments.names)
    if arguments.action == "apply":
        print("\n".join(apply(site, patches, python)) or "nothing to do")
    elif arguments.action == "revert":
        print("\n".join(revert(site, patches)) or "nothing to do")
    else:
        verify(site, patches)


if __name__ == "__main__":
    sys.exit(command(main))
