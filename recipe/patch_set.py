"""Patches as data: edits of a public distribution's files at short anchors, with the digests before and after.

A patch file (``recipe/patches/*.yaml``) holds no upstream code beyond its anchors. :meth:`PatchSet.compose` is pure:
pristine bytes and patches in, patched bytes out; success is the content, not an exit status. Every patched file ends
with a marker that names the patch, its version and its digest. In Python the marker is a statement, so a running
process can be asked which patches the module that it imported bears; elsewhere it is a comment. A file that knows no
comments, such as JSON, cannot be patched.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, field_validator

from runner.digest import sha256_bytes, sha256_json
from runner.errors import InputError
from runner.model.base import Digest, Record, Slug
from runner.model.scalars import Line, Whole
from runner.paths import source_root
from runner.yaml_strict import read

MARKER = "__carve_patches__"
"""The name that a patched Python module bears: a tuple of ``name@version:digest``."""

_FOUND = re.compile(
    rb"(?:^(?://|#|--) carve patch |^__carve_patches__ = .*\")([a-z0-9.\-]+@\d+:[0-9a-f]{12})", re.MULTILINE
)


_SIGNS = dict.fromkeys((".cu", ".cuh", ".c", ".cc", ".cpp", ".cxx", ".h", ".hh", ".hpp", ".hip", ".inc", ".inl"), "//")
_SIGNS |= dict.fromkeys((".cl", ".js", ".metal", ".mjs", ".rs", ".ts"), "//")
_SIGNS |= dict.fromkeys((".cfg", ".cmake", ".pxd", ".pyi", ".pyx", ".sh", ".toml", ".yaml", ".yml"), "#")
_SIGNS |= dict.fromkeys((".lua",), "--")
"""By a file's suffix, what begins a comment that ends with its line: the marker must not change what the file says."""


class Edit(Record):
    """One change. The anchor is a piece of a line that occurs exactly once in the file."""

    anchor: Annotated[str, StringConstraints(min_length=4, max_length=120, pattern=r"^[^\n]+$")] | None = None
    """Needed everywhere but at the end."""
    place: Literal["replace", "before", "after", "end"]
    """``replace`` puts the text in the anchor's stead, ``before`` and ``after`` put lines around the anchor's line."""
    text: str


class FilePatch(Record):
    """The edits of one file."""

    file: Line
    """Relative to the folder that holds the distribution's packages (``site-packages``)."""
    before: Digest
    """SHA-256 of the distribution's own file."""
    after: Digest
    """SHA-256 with this patch alone."""
    imports: Line | None = None
    """The Python module to import as proof; absent where no processor without a GPU can import it."""
    edits: tuple[Edit, ...]

    @field_validator("file")
    @classmethod
    def _inside(cls, path: str) -> str:
        pure = PurePosixPath(path)
        if pure.is_absolute() or ".." in pure.parts or len(pure.parts) < 2 or str(pure) != path:
            raise ValueError(f"{path!r} is no file inside a package")
        if pure.suffix != ".py" and pure.suffix not in _SIGNS:
            known = ", ".join([".py", *_SIGNS])
            raise ValueError(f"{path!r} has no room for a marker: comments are known in {known}")
        return path

    @field_validator("edits")
    @classmethod
    def _anchored(cls, edits: tuple[Edit, ...]) -> tuple[Edit, ...]:
        if any((edit.anchor is None) != (edit.place == "end") for edit in edits):
            raise ValueError("an edit has an anchor, unless its place is the end")
        return edits


class Patch(Record):
    """One purpose, possibly several files."""

    schema_version: Annotated[Whole, Field(ge=1, le=1)]
    name: Slug
    version: Whole
    """Goes up whenever an edit changes."""
    distribution: Line
    """``name==version`` whose files the digests are of."""
    why: Line
    files: Annotated[tuple[FilePatch, ...], Field(min_length=1)]

    def marker_of(self, file: FilePatch) -> str:
        """``name@version:digest``, the digest over this patch's edits of that file."""
        digest = sha256_json([file.before, [edit.model_dump() for edit in file.edits]])
        return f"{self.name}@{self.version}:{digest[:12]}"


@dataclass(frozen=True)
class PatchSet:
    """Patches in the order in which they are applied."""

    patches: tuple[Patch, ...]

    @property
    def digest(self) -> str:
        """Names the set: what a seat's caches are kept under."""
        return sha256_json([patch.model_dump(mode="json") for patch in self.patches])

    @cached_property
    def files(self) -> dict[str, tuple[tuple[Patch, FilePatch], ...]]:
        """Per file the patches that edit it. InputError where they disagree on what the pristine file is."""
        found: dict[str, list[tuple[Patch, FilePatch]]] = {}
        for patch in self.patches:
            for file in patch.files:
                found.setdefault(file.file, []).append((patch, file))
        for name, parts in found.items():
            digests = {file.before for _, file in parts}
            if len(digests) > 1:
                names = ", ".join(patch.name for patch, _ in parts)
                raise InputError(
                    "patches are for different files", where=f"{names}: {name}", found=str(sorted(digests))
                )
        return {name: tuple(parts) for name, parts in found.items()}

    def before(self, file: str) -> str:
        """Digest of the pristine file."""
        return self.files[file][0][1].before

    def markers(self, file: str) -> tuple[str, ...]:
        """What the patched file must bear, in order."""
        return tuple(patch.marker_of(part) for patch, part in self.files[file])

    @property
    def modules(self) -> dict[str, str]:
        """Python module to import as proof, and its file. InputError where two files name one."""
        found: dict[str, str] = {}
        for name, parts in self.files.items():
            for patch, part in parts:
                if part.imports and found.setdefault(part.imports, name) != name:
                    raise InputError(
                        "one module is to be imported as proof of two files",
                        where=f"{patch.name}: {name}",
                        expected="under `imports` the module that the file itself is",
                        found=f"{part.imports}, which {found[part.imports]} names too",
                    )
        return found

    def compose(self, file: str, pristine: bytes) -> bytes:
        """The patched content. InputError for a drifted file, or an anchor that does not occur exactly once."""
        found = sha256_bytes(pristine)
        if found != self.before(file):
            raise drifted(file, self.before(file), found)
        content = pristine
        for patch, part in self.files[file]:
            alone = patched(patch, part, pristine)
            if sha256_bytes(alone) != part.after:
                raise InputError(
                    "the patch gives another file than it says",
                    where=f"{patch.name}: {file}",
                    expected=part.after,
                    found=sha256_bytes(alone),
                    next_step="raise the patch's version and write the digest of the new result under `after`",
                )
            content = patched(patch, part, content)
        return content


def drifted(file: str, expected: str, found: str) -> InputError:
    """The error for a file that is neither the distribution's own nor this patch set's."""
    return InputError(
        "the file to patch has drifted",
        where=file,
        expected=f"SHA-256 {expected}",
        found=found,
        next_step="install the distribution that the patch names, or write the patch anew against this file",
    )


def load_patch(path: Path) -> Patch:
    """One patch. InputError with file and line for every fault."""
    patch: Patch = read(path).validate(Patch)
    return patch


def load_set(names: Iterable[str], folder: Path | None = None) -> PatchSet:
    """Patches by name from ``recipe/patches``. InputError for a name twice, or that no file has."""
    folder = folder or source_root() / "recipe" / "patches"
    wanted = list(names)
    if len(set(wanted)) != len(wanted):
        raise InputError("a patch is named twice", where=str(folder), found=", ".join(wanted))
    patches = []
    for name in wanted:
        path = folder / f"{name}.yaml"
        if not path.is_file():
            known = ", ".join(sorted(file.stem for file in folder.glob("*.yaml")))
            raise InputError("no such patch", where=str(folder), expected=known, found=name)
        patch = load_patch(path)
        if patch.name != name:
            raise InputError("patch and file have different names", where=str(path), expected=name, found=patch.name)
        patches.append(patch)
    return PatchSet(tuple(patches))


def refuse_other(patches: PatchSet, distribution: str) -> None:
    """InputError for a patch of another distribution than ``distribution`` (name==version)."""
    for patch in patches.patches:
        if patch.distribution != distribution:
            raise InputError(
                "the patch is for another distribution",
                where=patch.name,
                expected=distribution,
                found=patch.distribution,
            )


def patched(patch: Patch, part: FilePatch, content: bytes) -> bytes:
    """``content`` with one patch's edits and its marker. InputError for an anchor that occurs never or twice."""
    where = f"{patch.name}: {part.file}"
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise InputError("the file to patch is no UTF-8 text", where=where, found=f"byte {error.start}") from error
    for edit in part.edits:
        if edit.anchor is not None:
            _require_once(edit.anchor, content.decode(), where)  # not only in what an edit before it put in
        text = _edited(text, edit, where)
    return (text + _marker_line(part.file, patch.marker_of(part))).encode()


def _edited(text: str, edit: Edit, where: str) -> str:
    if edit.anchor is None:
        return text + edit.text
    _require_once(edit.anchor, text, where)
    start = text.index(edit.anchor)
    if edit.place == "replace":
        return text[:start] + edit.text + text[start + len(edit.anchor) :]
    if edit.place == "before":
        at = text.rfind("\n", 0, start) + 1
    elif "\n" not in text[start:]:
        return f"{text}\n{edit.text}"
    else:
        at = text.index("\n", start) + 1
    return text[:at] + edit.text + text[at:]


def _require_once(anchor: str, text: str, where: str) -> None:
    first = text.find(anchor)
    if first < 0 or text.find(anchor, first + 1) >= 0:  # `count` would not see occurrences that overlap
        found = "never" if first < 0 else "more than once"
        raise InputError("anchor is not unique", where=where, expected=f"{anchor!r} once", found=found)


def _marker_line(file: str, marker: str) -> str:
    if file.endswith(".py"):
        return f'\n{MARKER} = (*globals().get("{MARKER}", ()), "{marker}")\n'
    return f"\n{_SIGNS[PurePosixPath(file).suffix]} carve patch {marker}\n"


def markers_in(content: bytes) -> tuple[str, ...]:
    """The markers that a file bears, in order."""
    return tuple(found.decode() for found in _FOUND.findall(content))


def ours(markers: Sequence[str], patches: PatchSet) -> bool:
    """Whether any of ``markers`` bears the name of a patch of the set."""
    names = {patch.name for patch in patches.patches}
    return any(marker.partition("@")[0] in names for marker in markers)
