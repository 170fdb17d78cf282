"""Is a pack closed and whole: no link leaves it, no file is missing, and index and headers name the same tensors."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from recipe.headers import FIRST_BYTES, LFS_POINTER, MAX_HEADER, Fault, Header, PackError, unique

INDEX = "model.safetensors.index.json"
SMALL_FILES = ("config.json", "tokenizer.json", "tokenizer_config.json")
"""What every pack needs beside its weights."""
QUANTISATION = "quantization_config.json"
"""A file of its own in packs of exllamav3's making; ours keep the block inside ``config.json``."""
TOKENIZER = ("tokenizer.json", "tokenizer_config.json")
"""Here a name may stand twice: vocabularies of the field have it, and every reader of them takes the last."""
_OBJECT = "an object with each name once"
_HALVES = re.compile(rb"\\u[dD][89a-fA-F]")
"""Escapes of half characters: two make one, one alone cannot be written."""
_DEEPEST = 64
"""Containers inside one another; configurations have about five."""
BYTECODE = "__pycache__"
_UNFINISHED = re.compile(r"\.(aria2|crdownload|incomplete|part)$", re.IGNORECASE)
_TORCH = re.compile(r"(consolidated|model|weights).*\.(bin|ckpt|pt|pth)$", re.IGNORECASE)
"""Weights as torch saves them; its format holds other things too, as ``training_args.bin``."""
_COMPILED = re.compile(r"\.pyc(\.\d+)?$")
"""Bytecode, or the draft of it that a killed interpreter leaves."""


def weight_files(folder: Path) -> list[Path]:
    """Every safetensors file of the folder, indexed or not."""
    return sorted(folder.glob("*.safetensors"))


def small_files(folder: Path) -> list[Path]:
    """Every file that holds no weights, at any depth: configuration, tokenizer, index, notes; no bytecode."""
    weights = set(weight_files(folder))
    return [
        path for path in sorted(folder.rglob("*")) if path.is_file() and path not in weights and not is_bytecode(path)
    ]


def json_object(content: bytes, *, repeated: bool = False) -> dict[str, Any] | None:
    """The object, or None where the bytes are no JSON object that can be written again: UTF-8, text throughout.

    Nor where a name stands twice in one object, unless ``repeated``: of two values each reader takes the one it likes.
    """
    try:
        value = json.loads(content.decode(), object_pairs_hook=dict if repeated else unique)
        if _HALVES.search(content):
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) and not _deep(value) else None


def _deep(value: object) -> bool:
    """Whether containers stand deeper inside one another than any configuration needs, or a walk over them bears."""
    inside: list[object] = [value]
    for _ in range(_DEEPEST):
        inside = [
            child
            for one in inside
            if isinstance(one, dict | list)
            for child in (one.values() if isinstance(one, dict) else one)
        ]
    return bool(inside)


def is_bytecode(path: Path) -> bool:
    """Whether a path is the compiled form of a module beside it, or a folder of such: Python's own, nobody's file."""
    if path.name == BYTECODE:
        return path.is_dir() and not path.is_symlink() and all(map(is_bytecode, path.iterdir()))
    return (
        path.parent.name == BYTECODE
        and _COMPILED.search(path.name) is not None
        and path.is_file()
        and not path.is_symlink()
        and (path.parent.parent / f"{path.name.partition('.')[0]}.py").is_file()
    )


def link_faults(folder: Path) -> Iterator[PackError]:
    """Links that lead out of the pack or nowhere: the pack would die with what they point to.

    And names that are no text, which neither a listing nor a provenance can hold.
    """
    home = folder.resolve()
    for path in sorted(folder.rglob("*")):
        if not os.fsencode(path.name).isascii() and path.name.encode(errors="replace") != os.fsencode(path.name):
            told = ascii(path.name)
            yield PackError(Fault.MALFORMED, "file name is no UTF-8", where=str(folder), expected="text", found=told)
        # Unlike resolve(), realpath answers for links that run in a circle too.
        if path.is_symlink() and not (Path(os.path.realpath(path)).is_relative_to(home) and path.exists()):
            yield PackError(
                Fault.LINK,
                "link leads out of the pack or nowhere",
                where=str(path),
                expected="a file inside the pack",
                found=str(path.readlink()),
                next_step="replace the link by the file itself",
            )
        elif path.is_symlink() and path.is_dir():
            yield PackError(
                Fault.LINK,
                "link to a folder: what lies there has two names, and a copy of the files would have one",
                where=str(path),
                expected="files and folders",
                found=str(path.readlink()),
                next_step="replace the link by the folder itself",
            )


def small_file_faults(folder: Path) -> Iterator[PackError]:
    """Every file beside the weights is fetched, configuration and tokenizer are there, and JSON.

    Of the index :func:`index_faults` tells.
    """
    files = small_files(folder)
    yield from filter(None, map(_stray, files))
    pointers = {file for file in files if is_pointer(file)}
    yield from (_pointer(file) for file in sorted(pointers - {folder / INDEX}))
    for name in (*SMALL_FILES, *([QUANTISATION] if (folder / QUANTISATION).exists() else [])):
        file = folder / name
        if not file.is_file():
            yield PackError(Fault.MISSING, "file is missing", where=str(file), expected="a JSON file", found="none")
        elif file not in pointers and json_object(file.read_bytes(), repeated=name in TOKENIZER) is None:
            yield PackError(Fault.MALFORMED, "not JSON", where=str(file), expected=_OBJECT, found="something else")


def _stray(file: Path) -> PackError | None:
    """Weights that no reader of the pack looks for, told by how the file begins: what they are a copy of, nobody knows.

    In a folder of their own, under a suffix in capitals, of another format; and what a download left unfinished.
    """
    with file.open("rb") as stream:
        start = stream.read(FIRST_BYTES)
    fault, what = Fault.AMBIGUOUS, "weights that are not the pack's"
    if _UNFINISHED.search(file.name):
        fault, what = Fault.TRUNCATED, "a download that did not finish"
    elif not (
        (start[8:9] == b"{" and int.from_bytes(start[:8], "little") <= MAX_HEADER)
        or start.startswith(b"GGUF")
        or (_TORCH.search(file.name) and start.startswith((b"PK\x03\x04", b"\x80")))
    ):
        return None
    return PackError(
        fault,
        what,
        where=str(file),
        expected="weights in the pack's own folder, as NAME.safetensors",
        found=f"{file.stat().st_size} bytes",
        next_step="remove the file, or make a pack of its own of it",
    )


def is_pointer(file: Path) -> bool:
    """Whether a file is a pointer of Git LFS, which stands for one that was not fetched."""
    with file.open("rb") as stream:
        return stream.read(len(LFS_POINTER)) == LFS_POINTER


def _pointer(file: Path) -> PackError:
    return PackError(
        Fault.LFS_POINTER,
        "Git LFS pointer",
        where=str(file),
        expected="the file itself",
        found="a pointer",
        next_step="fetch the file itself, for example with `git lfs pull`",
    )


def index_faults(folder: Path, headers: Sequence[Header]) -> Iterator[PackError]:
    """The index and the headers must name the same tensors in the same files, and each tensor once.

    ``headers`` are those that could be read. Files beside the index are never guessed about: their tensors were
    forgotten by whoever wrote the index, or they are another set of the same tensors.
    """

    def fault(what: str, expected: str, found: str) -> PackError:
        return PackError(Fault.INDEX, what, where=str(folder / INDEX), expected=expected, found=found)

    files = weight_files(folder)
    if not files:
        yield PackError(Fault.MISSING, "no weights", where=str(folder), expected="safetensors files", found="none")
    if not (folder / INDEX).is_file():
        yield from _without_index(folder, headers, files)
        return
    if is_pointer(folder / INDEX):
        yield _pointer(folder / INDEX)
        return
    index = json_object((folder / INDEX).read_bytes())
    listed = index.get("weight_map") if index else None
    if not isinstance(listed, dict):
        yield fault("index has no weight map", "an object from tensor to file", type(listed).__name__)
        return
    if strange := [name for name, file in listed.items() if not isinstance(file, str)]:
        yield fault(f"index names no file for {strange[0]}", "the name of a file", str(listed[strange[0]])[:80])
        return
    named = set(listed.values())
    for file in sorted(named - {file.name for file in files}):
        where = str(folder / file)
        yield PackError(Fault.MISSING, "file is missing", where=where, expected="a safetensors file", found="none")
    own = [header for header in headers if header.file.name in named]
    for header in headers:
        if header.file.name not in named:
            yield _beside_the_index(header, own)
    yield from _repeated(folder, own)
    readable = {header.file.name for header in own}
    actual = {entry.name: entry.file.name for header in own for entry in header.entries}
    for name in sorted(set(listed) | set(actual)):
        if listed.get(name) != actual.get(name) and listed.get(name, actual.get(name)) in readable:
            yield fault(f"index and headers disagree on {name}", str(actual.get(name)), str(listed.get(name)))
    metadata = (index or {}).get("metadata")
    total = metadata.get("total_size") if isinstance(metadata, dict) else None
    held = sum(entry.nbytes for header in own for entry in header.entries)
    if total is not None and total != held and readable == named:
        yield fault("total size is not the sum of the tensors' bytes", str(held), str(total))


def _beside_the_index(header: Header, own: Sequence[Header]) -> PackError:
    known = {entry.name for other in own for entry in other.entries}
    mine = {entry.name for entry in header.entries}
    fault, what = Fault.INDEX, f"{len(mine)} tensors on disk are not in the index"
    if mine & known:
        fault, what = Fault.AMBIGUOUS, f"{len(mine & known)} tensors stand in an indexed file too"
    return PackError(
        fault,
        what,
        where=str(header.file),
        expected="only files that the index names",
        found=", ".join(sorted(mine)[:3]),
        next_step="remove the file, or rebuild the index from the headers of the files that belong together",
    )


def _without_index(folder: Path, headers: Sequence[Header], files: Sequence[Path]) -> Iterator[PackError]:
    if len(files) < 2:
        return
    held = Counter(entry.name for header in headers for entry in header.entries)
    several = [name for name, count in held.items() if count > 1]
    if several:
        yield PackError(
            Fault.AMBIGUOUS,
            f"{len(several)} tensors stand in more than one file and no index says which counts",
            where=str(folder),
            expected=f"an index of {len(files)} files",
            found=", ".join(file.name for file in files),
            next_step="remove the set that is not meant",
        )
    else:
        expected = f"an index of {len(files)} files"
        yield PackError(Fault.INDEX, "index is missing", where=str(folder / INDEX), expected=expected, found="none")


def _repeated(folder: Path, headers: Sequence[Header]) -> Iterator[PackError]:
    held = Counter(entry.name for header in headers for entry in header.entries)
    for name in sorted(name for name, count in held.items() if count > 1):
        yield PackError(
            Fault.AMBIGUOUS,
            "tensor stands in two files",
            where=str(folder / INDEX),
            expected=f"{name} once",
            found=str(held[name]),
        )
