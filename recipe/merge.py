"""Put coded modules into a pack in the place of the plain weights they came from; everything else stays byte for byte.

Every value of the configuration and the index is derived from the tensors that are written, so a stamp cannot be wrong.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from carve_kernels.exl3 import pack_format

from recipe import pack_write
from recipe.bake_modules import Target
from recipe.configured import CONFIG
from recipe.headers import Entry, read_header
from recipe.pack import INDEX, Pack
from recipe.shard_write import Part, in_order, same, write
from runner.digest import sha256_file
from runner.errors import InputError
from runner.model.product import PROVENANCE


@dataclass(frozen=True)
class Merge:
    """Which tensors go, which come, and in which of the pack's files; known from headers alone."""

    dropped: dict[str, Entry]
    """Tensors of the base that the product lacks, or has anew."""
    homes: dict[str, str]
    """Module to the file that held what it replaces."""

    @property
    def rewritten(self) -> frozenset[str]:
        """Files of the base that change."""
        return frozenset(self.homes.values())


def plan_merge(base: Pack, targets: Sequence[Target]) -> Merge:
    """Resolve a merge. InputError for a module of which the base holds neither a plain weight nor a coded form."""
    dropped: dict[str, Entry] = {}
    homes: dict[str, str] = {}
    for target in targets:
        mine = [base.tensors[target.weight]] if target.weight in base.tensors else []
        if target.name in base.modules:
            names = pack_format.tensor_names(target.name, base.modules[target.name].codebook)
            mine += [base.tensors[name] for name in names]
        if not mine:
            raise InputError(
                "the pack lacks the module that the bake codes",
                where=str(base.folder),
                expected=f"{target.weight} or {target.name}.trellis",
                found="neither",
            )
        dropped |= {entry.name: entry for entry in mine}
        homes[target.name] = mine[0].file.name
    return Merge(dropped, homes)


def merge(base: Pack, plan: Merge, coded: Mapping[str, Entry], folder: Path) -> None:
    """Write the merged pack's weights, index and configuration into the empty ``folder``.

    ``coded`` are the new tensors by name, wherever they lie. Raises OSError where the disk stands in the way.
    """
    incoming: dict[str, list[Part]] = {}
    for entry in coded.values():
        incoming.setdefault(plan.homes[entry.name.rpartition(".")[0]], []).append(Part.of(entry))
    for header in base.headers:
        destination = folder / header.file.name
        gone = [entry for entry in header.entries if entry.name in plan.dropped]
        if not gone and header.file.name not in incoming:
            shutil.copyfile(header.file, destination)
            continue
        kept = [Part.of(entry) for entry in header.entries if entry.name not in plan.dropped]
        write(destination, in_order([*kept, *incoming.get(header.file.name, [])]), header.metadata)
    pack_write.copy_small_files(base.folder, folder)
    written = {header.file.name: read_header(folder / header.file.name).entries for header in base.headers}
    pack_write.write_index(folder, {file: {e.name: e.nbytes for e in entries} for file, entries in written.items()})
    pack_write.write_json(folder / CONFIG, configuration(base, [e for entries in written.values() for e in entries]))


def configuration(base: Pack, entries: Iterable[Entry]) -> dict[str, Any]:
    """The base's configuration with a quantisation block that says what ``entries`` hold."""
    config: dict[str, Any] = json.loads((base.folder / CONFIG).read_text(encoding="utf-8"))
    block = pack_write.quantization_config((entry.name, entry.shape) for entry in entries)
    return config | {"quantization_config": block}


def faults(base: Pack, product: Pack, plan: Merge, targets: Sequence[Target]) -> list[str]:
    """Every way in which ``product`` is not ``base`` with these modules coded: names, bytes, bits, configuration."""
    found: list[str] = []
    new = {
        name
        for target in targets
        if target.name in product.modules
        for name in pack_format.tensor_names(target.name, product.modules[target.name].codebook)
    }
    wanted = (set(base.tensors) - set(plan.dropped)) | new
    found += [f"{name} should have gone" for name in sorted(set(product.tensors) & (set(plan.dropped) - new))]
    found += [f"{name} is not of this bake" for name in sorted(set(product.tensors) - wanted - set(plan.dropped))]
    found += [f"{name} is missing" for name in sorted(wanted - set(product.tensors))]
    for target in targets:
        module = product.modules.get(target.name)
        if module is None or module.bits != target.bits:
            found.append(f"{target.name} has {module.bits if module else 'no'} bits, the order says {target.bits}")
    kept = sorted((set(base.tensors) & set(product.tensors)) - set(plan.dropped))
    found += [f"{name} is not the base's" for name in kept if not same(base.tensors[name], product.tensors[name])]
    if json.loads((product.folder / CONFIG).read_bytes()) != configuration(base, product.tensors.values()):
        found.append(f"{CONFIG} is not what the tensors say")
    return found + list(_other_files(base, product))


def _other_files(base: Pack, product: Pack) -> Iterator[str]:
    """Small files as the base has them, none forgotten; and nothing that a merge does not write, at any depth."""
    small = {file.name: file for file in pack_write.small_files(base.folder) if file.name != PROVENANCE}
    wanted = {header.file.name for header in base.headers} | {CONFIG, INDEX, PROVENANCE, *small}
    there = {
        str(path.relative_to(product.folder))
        for path in product.folder.rglob("*")
        if path.is_symlink() or not path.is_dir()
    }
    yield from (f"{name} belongs to nothing" for name in sorted(there - wanted))
    yield from (f"{name} was not copied" for name in sorted(small.keys() - there))
    for name in sorted(small.keys() & there):
        if sha256_file(product.folder / name) != sha256_file(small[name]):
            yield f"{name} should be unchanged and is not"
