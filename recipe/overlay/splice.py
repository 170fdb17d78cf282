"""Which tensors go, which come and under what names: everything is decided from headers, before the first byte."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from carve_kernels.exl3.pack_format import MARKERS, modules

from recipe.bake_modules import SERVED_AS_ONE
from recipe.blocks import CONFIG
from recipe.census import Module, module_of
from recipe.closure import json_object
from recipe.headers import Entry
from recipe.model_size import is_draft, own_layers
from recipe.pack import Pack
from runner.errors import InputError
from runner.model.order import Overlay

_PLAIN = frozenset({"F16", "BF16", "F32", "F8_E4M3", "F8_E5M2"})
"""Types of which each element is one weight."""
_MARKERS = frozenset(book.value for book in MARKERS)


@dataclass(frozen=True, slots=True)
class Splice:
    """One tensor of the donor and its place in the product."""

    name: str
    donor: Entry
    """As the donor's header describes it."""
    shape: tuple[int, ...]
    """As it is written: a codebook marker stored as a scalar becomes a vector of one."""
    shard: str
    """The product's file: the one that held the replaced module."""


@dataclass(frozen=True)
class Plan:
    """An overlay, resolved."""

    source: Pack
    splices: tuple[Splice, ...]
    dropped: tuple[Entry, ...]
    """Tensors of the source that the product does not have, or has from the donor."""
    modules: dict[str, Module]
    """The coded modules that come."""

    @cached_property
    def gone(self) -> frozenset[str]:
        """The names of what is dropped."""
        return frozenset(entry.name for entry in self.dropped)

    @cached_property
    def rewritten(self) -> frozenset[str]:
        """Files of the source that lose tensors; all others stay as they are."""
        return frozenset(entry.file.name for entry in self.dropped)

    @property
    def nbytes_in(self) -> int:
        return sum(splice.donor.nbytes for splice in self.splices)

    @property
    def nbytes_out(self) -> int:
        return sum(entry.nbytes for entry in self.dropped)


def dropped_of(recipe: Overlay, source: Pack) -> dict[str, list[Entry]]:
    """The replaced tensors by layer of the source.

    Raises InputError for a layer that has no such experts, and for one of another kind than the order says.
    """
    found: dict[str, list[Entry]] = {}
    for layer in recipe.layers.values():
        prefix = f"{layer}.{recipe.experts}."
        found[layer] = [entry for name, entry in source.tensors.items() if name.startswith(prefix)]
        if not found[layer]:
            raise InputError(
                "the source has no such experts", where=str(source.folder), expected=f"tensors {prefix}*", found="none"
            )
        refuse_other_kind(recipe, source, layer, (entry.name for entry in found[layer]))
    return found


def refuse_other_kind(recipe: Overlay, source: Pack, layer: str, names: Iterable[str]) -> None:
    """InputError for tensors of ``source`` that are not of the kind of layer that the overlay says.

    ``names`` are those that go for ``layer``: they say where it stands, however the order parts them into words.
    """
    config = json_object((source.folder / CONFIG).read_bytes()) or {}
    for name in names:
        drafts = is_draft(config, name)
        if drafts != (recipe.what == "mtp"):
            raise InputError(
                "the overlay names a layer of another kind",
                where=f"layers: {layer} ({name})",
                expected="a draft layer" if recipe.what == "mtp" else "a layer of the model",
                found=f"{'a draft layer' if drafts else 'a layer of the model'}; "
                f"num_hidden_layers is {own_layers(config)}",
                next_step=f"write `what: {'mtp' if drafts else 'layer'}`, or correct the layer",
            )


def resolve(recipe: Overlay, source: Pack, donor: Mapping[str, Entry]) -> Plan:
    """The whole overlay. ``donor`` is every tensor of the donor by its own name.

    Raises InputError wherever source, donor and order do not fit together: a module on one side only, sizes that
    differ, a donor that is not EXL3, one name for two tensors, projections of a fused module at different bits.
    """
    dropped = dropped_of(recipe, source)
    coming: dict[str, Entry] = {}
    for theirs, ours in recipe.layers.items():
        for name, entry in donor.items():
            if name.startswith(f"{theirs}."):
                renamed = _renamed(name.removeprefix(f"{theirs}."), recipe.names)
                if renamed.startswith(f"{recipe.experts}."):
                    _once(f"{ours}.{renamed}", entry, coming)
    gone = [entry for entries in dropped.values() for entry in entries]
    _same_modules({_module(entry.name) for entry in gone}, {_module(name) for name in coming})
    found = {name: module_of(name, coming) for name in modules(coming)}
    _all_coded(coming, found)
    _same_sizes(recipe, source, found, {_module(entry.name) for entry in gone})
    _one_width(recipe, found)
    shards = {
        _module(entry.name): entry.file.name for entry in sorted(gone, key=lambda entry: entry.name, reverse=True)
    }
    splices = [
        Splice(name, entry, _normal_shape(name, entry), shards[_module(name)]) for name, entry in sorted(coming.items())
    ]
    return Plan(source, tuple(splices), tuple(gone), found)


def _module(name: str) -> str:
    return name.rpartition(".")[0]


def _renamed(rest: str, names: Mapping[str, str]) -> str:
    return ".".join(names.get(part, part) for part in rest.split(".")) if names else rest


def _once(name: str, entry: Entry, coming: dict[str, Entry]) -> None:
    if name in coming:
        raise InputError(
            "two tensors of the donor get one name",
            where=name,
            expected="one",
            found=f"{coming[name].name}, {entry.name}",
        )
    coming[name] = entry


def _same_modules(gone: set[str], coming: set[str]) -> None:
    only = {"only in the source": sorted(gone - coming), "only in the donor": sorted(coming - gone)}
    for side, names in only.items():
        if names:
            raise InputError(
                "source and donor do not have the same experts",
                where=names[0],
                expected=f"{len(gone)} modules on both sides",
                found=f"{len(names)} {side}: {', '.join(names[:3])}",
                next_step="correct the order's layers, experts and names",
            )


def _all_coded(coming: Mapping[str, Entry], found: Mapping[str, Module]) -> None:
    parts = {f"{name}.{part}" for name in found for part in ("trellis", "suh", "svh", *_MARKERS)}
    plain = sorted(set(coming) - parts)
    if plain:
        raise InputError(
            "the donor's expert is not EXL3", where=plain[0], expected="trellis, suh, svh and a marker", found=plain[0]
        )


def _same_sizes(recipe: Overlay, source: Pack, found: Mapping[str, Module], gone: set[str]) -> None:
    """Each module against the one it replaces, coded or plain, else against a coded expert of the same kind."""
    kinds = {
        name.rpartition(".")[2]: (module.in_features, module.out_features)
        for name, module in source.modules.items()
        if f".{recipe.experts.rpartition('.')[2]}." in name and name not in gone
    }
    for name, module in found.items():
        coded = source.modules.get(name)
        other = _plain_size(source.tensors.get(f"{name}.weight")) or kinds.get(name.rpartition(".")[2])
        wanted = (coded.in_features, coded.out_features) if coded else other
        if wanted is not None and wanted != (module.in_features, module.out_features):
            raise InputError(
                "the donor's expert has another size",
                where=name,
                expected=f"{wanted}",
                found=f"{(module.in_features, module.out_features)}",
            )


def _plain_size(weight: Entry | None) -> tuple[int, int] | None:
    """Inputs and outputs of a plain weight ``[out, in]``; of whole bytes that may hold two numbers each, nothing."""
    if weight is None or len(weight.shape) != 2 or weight.dtype not in _PLAIN:
        return None
    return weight.shape[1], weight.shape[0]


def _one_width(recipe: Overlay, found: Mapping[str, Module]) -> None:
    """Bits and codebook of what a served module fuses: by the order, and by what engines join whatever it says."""
    for parent in sorted({_module(name) for name in found}):
        for group in (*recipe.fused, *SERVED_AS_ONE):
            kinds = {part: found[f"{parent}.{part}"] for part in group if f"{parent}.{part}" in found}
            if len(kinds) != len(group) and group in recipe.fused:
                raise InputError(
                    "a fused module lacks a projection", where=parent, expected=", ".join(group), found=", ".join(kinds)
                )
            if len({(module.bits, module.codebook) for module in kinds.values()}) > 1:
                told = ", ".join(f"{part} K={module.bits} {module.codebook}" for part, module in kinds.items())
                raise InputError(
                    "projections that are served as one module differ in bits or codebook",
                    where=parent,
                    expected="one K and one codebook",
                    found=told,
                    next_step="take another donor",
                )


def _normal_shape(name: str, entry: Entry) -> tuple[int, ...]:
    """A scalar marker as our packs store it: a vector of one (campaign FL-44)."""
    return (1,) if name.rpartition(".")[2] in _MARKERS else entry.shape
