"""Read a pack from its own bytes: headers, census, digests and closure.

A pack is a folder with safetensors files, their index (where there is more than one), a configuration and a tokenizer.
What it holds is taken from the headers of the safetensors files, never from the configuration; where the configuration
says something else, that is a fault.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from carve_kernels.exl3 import pack_format, trellis
from carve_kernels.exl3.codebook import Codebook

from recipe.headers import LFS_POINTER, Entry, Fault, Header, PackError, read_header
from runner.digest import sha256_json, sha256_tree
from runner.errors import InputError

INDEX = "model.safetensors.index.json"
SMALL_FILES = ("config.json", "tokenizer.json", "tokenizer_config.json")
"""What every pack needs beside its weights."""


@dataclass(frozen=True)
class Module:
    """A coded module as its headers tell it."""

    bits: int
    codebook: Codebook
    in_features: int
    out_features: int


@dataclass(frozen=True)
class Pack:
    """A pack whose headers, index and links were found in order."""

    folder: Path
    headers: tuple[Header, ...]

    @cached_property
    def tensors(self) -> dict[str, Entry]:
        """All tensors by name."""
        return {entry.name: entry for header in self.headers for entry in header.entries}

    @cached_property
    def modules(self) -> dict[str, Module]:
        """The census of coded modules: bits, codebook and size of each, from shapes and markers alone."""
        return {name: _module(name, self.tensors) for name in pack_format.modules(self.tensors)}

    def census(self) -> dict[int, int]:
        """Number of coded weights by bits a weight."""
        count: Counter[int] = Counter()
        for module in self.modules.values():
            count[module.bits] += module.in_features * module.out_features
        return dict(sorted(count.items()))

    def header_digest(self) -> str:
        """Digest of all headers: names, types, shapes and places of every tensor; no payload is read."""
        return sha256_json({header.file.name: header.digest for header in self.headers})

    def payload_digest(self) -> str:
        """Digest of every byte of the safetensors files."""
        return sha256_tree(self.folder, [header.file for header in self.headers])

    def small_files_digest(self) -> str:
        """Digest of every other file: configuration, tokenizer, index, notes."""
        weights = {header.file for header in self.headers}
        return sha256_tree(self.folder, [file for file in _files(self.folder) if file not in weights])


def read_pack(folder: Path) -> Pack:
    """The pack in ``folder``; raises its first fault (PackError)."""
    pack, faults = inspect(folder)
    if faults:
        raise faults[0]
    return pack


def inspect(folder: Path) -> tuple[Pack, list[PackError]]:
    """Everything readable in ``folder``, and every fault found there."""
    if not folder.is_dir():
        fault = PackError(Fault.MISSING, "no such pack", where=str(folder), expected="a folder", found="none")
        return Pack(folder, ()), [fault]
    faults = [*_link_faults(folder), *_small_file_faults(folder)]
    headers: list[Header] = []
    for file in _weight_files(folder):
        try:
            headers.append(read_header(file))
        except PackError as error:
            faults.append(error)
    pack = Pack(folder, tuple(headers))
    faults.extend(_index_faults(pack))
    for name in pack_format.modules(pack.tensors):
        try:
            _module(name, pack.tensors)
        except PackError as error:
            faults.append(error)
    if not faults:
        faults.extend(_configuration_faults(pack))
    return pack, faults


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _weight_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.safetensors"))


def _link_faults(folder: Path) -> Iterator[PackError]:
    home = folder.resolve()
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() and not (path.resolve().is_relative_to(home) and path.exists()):
            yield PackError(
                Fault.LINK,
                "link leads out of the pack or nowhere",
                where=str(path),
                expected="a file inside the pack",
                found=str(path.readlink()),
                next_step="replace the link by the file itself",
            )


def _small_file_faults(folder: Path) -> Iterator[PackError]:
    for name in SMALL_FILES:
        file = folder / name
        if not file.is_file():
            yield PackError(Fault.MISSING, "file is missing", where=str(file), expected="a JSON file", found="none")
            continue
        content = file.read_bytes()
        if content.startswith(LFS_POINTER):
            yield PackError(Fault.LFS_POINTER, "Git LFS pointer", where=str(file), expected="JSON", found="a pointer")
        elif _json_object(content) is None:
            yield PackError(Fault.MALFORMED, "not JSON", where=str(file), expected="an object", found="something else")


def _json_object(content: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(content)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _index_faults(pack: Pack) -> Iterator[PackError]:
    """The index and the headers must name the same tensors in the same files, and each tensor once."""

    def fault(what: str, expected: str, found: str) -> PackError:
        return PackError(Fault.INDEX, what, where=str(pack.folder / INDEX), expected=expected, found=found)

    held = Counter(entry.name for header in pack.headers for entry in header.entries)
    for name in sorted(name for name, count in held.items() if count > 1):
        yield fault("tensor stands in two files", f"{name} once", str(held[name]))
    files = _weight_files(pack.folder)
    if not files:
        yield PackError(Fault.MISSING, "no weights", where=str(pack.folder), expected="safetensors files", found="none")
    if not (pack.folder / INDEX).is_file():
        if len(files) > 1:
            yield fault("index is missing", f"an index of {len(files)} files", "none")
        return
    index = _json_object((pack.folder / INDEX).read_bytes())
    listed = index.get("weight_map") if index else None
    if not isinstance(listed, dict):
        yield fault("index has no weight map", "an object from tensor to file", type(listed).__name__)
        return
    for file in sorted(set(map(str, listed.values())) - {file.name for file in files}):
        where = str(pack.folder / file)
        yield PackError(Fault.MISSING, "file is missing", where=where, expected="a safetensors file", found="none")
    readable = {header.file.name for header in pack.headers}
    actual = {entry.name: entry.file.name for entry in pack.tensors.values()}
    for name in sorted(set(listed) | set(actual)):
        if listed.get(name) != actual.get(name) and listed.get(name, actual.get(name)) in readable:
            yield fault(f"index and headers disagree on {name}", str(actual.get(name)), str(listed.get(name)))


def _module(name: str, tensors: dict[str, Entry]) -> Module:
    def broken(what: str, expected: str, found: str) -> PackError:
        return PackError(Fault.MODULE, what, where=name, expected=expected, found=found)

    coded = tensors[f"{name}.trellis"]
    if coded.dtype != "I16" or len(coded.shape) != 3 or coded.shape[2] % 16 or coded.shape[2] // 16 not in trellis.BITS:
        raise broken("not a trellis", "I16 [in/16, out/16, 16 * K]", f"{coded.dtype} {coded.shape}")
    inputs, outputs = coded.shape[0] * 16, coded.shape[1] * 16
    try:
        book = pack_format.codebook_of(name, tensors)
    except InputError as error:
        raise broken(error.what, error.expected, error.found) from error
    marker = {} if book is Codebook.DEFAULT else {book.value: ("I32", 1)}
    for part, (dtype, size) in ({"suh": ("F16", inputs), "svh": ("F16", outputs)} | marker).items():
        entry = tensors.get(f"{name}.{part}")
        found = "none" if entry is None else f"{entry.dtype} {entry.shape}"
        if entry is None or entry.dtype != dtype or int(np.prod([1, *entry.shape])) != size:
            raise broken(f"{part} does not fit the trellis", f"{dtype} of {size} values", found)
        if part in marker and int(entry.read().reshape(-1)[0]) != pack_format.MARKERS[book]:
            raise broken("unknown codebook marker", str(pack_format.MARKERS[book]), str(entry.read().tolist()))
    return Module(coded.shape[2] // 16, book, inputs, outputs)


def _configuration_faults(pack: Pack) -> Iterator[PackError]:
    """Where the configuration speaks of coded modules, it must say what the headers say."""
    configuration = _json_object((pack.folder / "config.json").read_bytes()) or {}
    quantised = configuration.get("quantization_config", {})
    storage = quantised.get("tensor_storage", {}) if isinstance(quantised, dict) else {}
    told = {
        name: value.get("bits_per_weight") for name, value in storage.items() if value.get("quant_format") == "exl3"
    }
    actual = {name: module.bits for name, module in pack.modules.items()}
    if not told:
        return
    for name in sorted(set(told) | set(actual)):
        if told.get(name) != actual.get(name):
            yield PackError(
                Fault.CONFIGURATION,
                "configuration and headers disagree on a module's bits",
                where=f"{pack.folder / 'config.json'} {name}",
                expected=str(actual.get(name)),
                found=str(told.get(name)),
            )
