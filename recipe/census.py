"""What a pack holds, layer by layer, from its headers alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from carve_kernels.exl3 import pack_format, trellis
from carve_kernels.exl3.codebook import Codebook

from recipe.headers import Entry, Fault, PackError
from runner.errors import InputError

_HALVES = (1.5, 2.5, 3.5)
OUTSIDE = "outside the layers"
"""Embeddings, final norm, head."""


@dataclass(frozen=True, slots=True)
class Module:
    """A coded module as its headers tell it."""

    bits: float
    """Whole, but for the halves that exllamav3 knows with ``mul1``: 1.5, 2.5 and 3.5."""
    codebook: Codebook
    in_features: int
    out_features: int

    @property
    def weights(self) -> int:
        """Number of coded weights."""
        return self.in_features * self.out_features


@dataclass
class Layer:
    """What one layer holds."""

    nbytes: int = 0
    formats: Counter[str] = field(default_factory=Counter)
    """Bytes by tensor type of everything that is not coded."""
    bits: Counter[float] = field(default_factory=Counter)
    """Coded weights by bits a weight."""
    codebooks: set[str] = field(default_factory=set)


def layer_of(tensor: str) -> str:
    """``model.layers.3`` of ``model.layers.3.mlp.gate.weight``: the name up to its first number."""
    parts = tensor.split(".")
    numbers = [place for place, part in enumerate(parts) if part.isdigit()]
    return ".".join(parts[: numbers[0] + 1]) if numbers else OUTSIDE


def layers(tensors: Mapping[str, Entry], modules: Mapping[str, Module]) -> dict[str, Layer]:
    """Every layer by its prefix, in numeric order."""
    found: dict[str, Layer] = {}
    for name, entry in tensors.items():
        layer = found.setdefault(layer_of(name), Layer())
        layer.nbytes += entry.nbytes
        if name.rpartition(".")[0] not in modules:
            layer.formats[entry.dtype] += entry.nbytes
    for name, module in modules.items():
        layer = found[layer_of(name)]
        layer.bits[module.bits] += module.weights
        layer.codebooks.add(module.codebook.value)
    return dict(sorted(found.items(), key=lambda item: _numeric(item[0])))


def _numeric(prefix: str) -> tuple[str, int]:
    head, _, number = prefix.rpartition(".")
    return (head, int(number)) if number.isdigit() else ("", -1)


def bits_of(shape: tuple[int, ...]) -> float:
    """Bits a weight of a trellis of this shape, K; an int where K is whole."""
    return shape[2] / 16 if shape[2] % 16 else shape[2] // 16


def module_of(name: str, tensors: Mapping[str, Entry]) -> Module:
    """The coded module ``name``; PackError where its tensors do not fit each other."""

    def broken(what: str, expected: str, found: str) -> PackError:
        return PackError(Fault.MODULE, what, where=name, expected=expected, found=found)

    coded = tensors[f"{name}.trellis"]
    try:
        book = pack_format.codebook_of(name, tensors)
    except InputError as error:
        raise broken(error.what, error.expected, error.found) from error
    known = (*trellis.BITS, *(_HALVES if book is Codebook.MUL1 else ()))
    if coded.dtype != "I16" or len(coded.shape) != 3 or bits_of(coded.shape) not in known:
        raise broken("not a trellis", "I16 [in/16, out/16, 16 * K]", f"{coded.dtype} {coded.shape}")
    inputs, outputs = coded.shape[0] * 16, coded.shape[1] * 16
    marker = {} if book is Codebook.DEFAULT else {book.value: ("I32", 1)}
    for part, (dtype, size) in ({"suh": ("F16", inputs), "svh": ("F16", outputs)} | marker).items():
        entry = tensors.get(f"{name}.{part}")
        found = "none" if entry is None else f"{entry.dtype} {entry.shape}"
        if entry is None or entry.dtype != dtype or int(np.prod([1, *entry.shape])) != size:
            raise broken(f"{part} does not fit the trellis", f"{dtype} of {size} values", found)
    return Module(bits_of(coded.shape), book, inputs, outputs)


def is_plain(part: str) -> bool:
    """Whether a tensor of this last name is a module's plain weight, or a scale that belongs to one."""
    return part == "weight" or part.startswith("weight_") or part in ("scale", "input_scale")


def check_marker(name: str, module: Module, tensors: Mapping[str, Entry]) -> None:
    """PackError where the codebook's marker, which has to lie on this disk, holds another value than its codebook's."""
    if module.codebook is Codebook.DEFAULT:
        return
    value = tensors[f"{name}.{module.codebook.value}"].read().reshape(-1).tolist()
    expected = pack_format.MARKERS[module.codebook]
    if value != [expected]:
        raise PackError(Fault.MODULE, "unknown codebook marker", where=name, expected=str(expected), found=str(value))
