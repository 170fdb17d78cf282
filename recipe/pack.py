"""Read a pack from its own bytes: headers, census, digests and closure.

A pack is a folder with safetensors files, their index (where there is more than one), a configuration and a tokenizer.
What it holds is taken from the headers of the safetensors files, never from the configuration; where the configuration
says something else, that is a fault.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from carve_kernels.exl3 import pack_format

from recipe import census
from recipe.census import Layer, Module, check_marker, module_of
from recipe.closure import (
    INDEX,
    SMALL_FILES,
    index_faults,
    link_faults,
    small_file_faults,
    small_files,
    weight_files,
)
from recipe.codes import blanks, holes
from recipe.configured import configuration_faults
from recipe.headers import Entry, Fault, Header, PackError, read_header
from recipe.payload import file_digests
from runner.digest import sha256_json, sha256_listing, sha256_tree


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
        return {name: module_of(name, self.tensors) for name in pack_format.modules(self.tensors)}

    def census(self) -> dict[float, int]:
        """Number of coded weights by bits a weight."""
        count: Counter[float] = Counter()
        for module in self.modules.values():
            count[module.bits] += module.weights
        return dict(sorted(count.items()))

    def layers(self) -> dict[str, Layer]:
        """The census layer by layer: bytes, formats, bits, codebooks."""
        return census.layers(self.tensors, self.modules)

    def header_digest(self) -> str:
        """Digest of all headers: names, types, shapes and places of every tensor; no payload is read."""
        return sha256_json({header.file.name: header.digest for header in self.headers})

    def payload_digest(self, kept: Path | None = None) -> str:
        """Digest of every byte of the safetensors files; ``kept`` as in :func:`recipe.payload.file_digests`."""
        return sha256_listing(file_digests([header.file for header in self.headers], kept))

    def small_files(self) -> list[Path]:
        """Every other file: configuration, tokenizer, index, notes."""
        return small_files(self.folder)

    def small_files_digest(self) -> str:
        """Digest of :meth:`small_files`."""
        return sha256_tree(self.folder, self.small_files())


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
    faults = [*link_faults(folder), *small_file_faults(folder)]
    headers: list[Header] = []
    for file in weight_files(folder):
        try:
            headers.append(read_header(file))
        except PackError as error:
            faults.append(error)
    pack = Pack(folder, tuple(headers))
    faults.extend(index_faults(folder, pack.headers))
    for name in pack_format.modules(pack.tensors):
        try:
            check_marker(name, module_of(name, pack.tensors), pack.tensors)
        except PackError as error:
            faults.append(error)
    if not faults:
        faults.extend(configuration_faults(folder, pack.modules, pack.tensors))
        faults.extend(holes(pack.headers))
        if not faults:
            faults.extend(blanks(pack.modules, pack.tensors))
    return pack, faults


__all__ = ["INDEX", "SMALL_FILES", "Module", "Pack", "inspect", "read_pack"]
