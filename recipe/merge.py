"""Put coded modules into a pack in the place of the plain weights they came from; everything else stays byte for byte.

Every value of the configuration and the index is derived from the tensors that are written, so a stamp cannot be wrong.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from carve_kernels.exl3 import pack_format

from recipe import pack_write
from recipe.bake_modules import Target
from recipe.census import is_plain
from recipe.headers import Entry, read_header
from recipe.pack import INDEX, Pack
from recipe.shard_write import Part, in_order, same, write
from runner.errors import InputError


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
        return frozenset({*self.homes.values(), *(entry.file.name for entry in self.dropped.values())})


def plan_merge(base: Pack, targets: Sequence[Target]) -> Merge:
    """Resolve a merge. InputError for a module of which the base holds neither a plain weight nor a coded form.

    With a plain weight go its scales: without it they would scale nothing, or the codes.
    """
    dropped: dict[str, Entry] = {}
    homes: dict[str, str] = {}
    plain: dict[str, list[Entry]] = {}
    for name, entry in base.tensors.items():
        if is_plain(name.rpartition(".")[2]):
            plain.setdefault(name.rpartition(".")[0], []).append(entry)
    for target in targets:
        mine = plain.get(target.weight.rpartition(".")[0], [])
        if target.name in base.modules:
            names = pack_format.tensor_names(target.name, base.modules[target.name].codebook)
            mine = mine + [base.tensors[name] for name in names]
        if not mine:
            raise InputError(
                "the pack lacks the module that the bake codes",
                where=str(base.folder),
                expected=f"{target.weight} or {target.name}.trellis",
                found="neither",
            )
        dropped |= {entry.name: entry for entry in mine}
        homes[target.name] = next((one for one in mine if one.name == target.weight), mine[0]).file.name
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
    headers = [read_header(folder / header.file.name) for header in base.headers]
    pack_write.write_index(folder, headers)
    tensors = {entry.name: entry for header in headers for entry in header.entries}
    for name, content in pack_write.configurations(base.folder, tensors).items():
        pack_write.write_json(folder / name, content)


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
    derived = pack_write.configurations(base.folder, product.tensors)
    written = derived | {INDEX: pack_write.index_of(product.headers)}
    return found + list(pack_write.file_faults(base, product.folder, written))
