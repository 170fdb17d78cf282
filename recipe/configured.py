"""What a pack's configuration says of its coded modules, against what the headers say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from recipe.census import Module, layers
from recipe.closure import json_object
from recipe.headers import Entry, Fault, PackError

CONFIG = "config.json"
QUANTISATION = "quantization_config.json"
"""A file of its own in packs of exllamav3's making; ours keep the block inside ``config.json``."""
_MEAN_TOLERANCE = 0.1
"""Bits a weight: a mean is rounded, and some writers leave the head out of it."""


def quantisation_blocks(folder: Path) -> dict[str, dict[str, Any]]:
    """Every quantisation block of the pack, by the file it stands in."""
    inside = (json_object((folder / CONFIG).read_bytes()) or {}).get("quantization_config")
    blocks = {CONFIG: inside} if isinstance(inside, dict) else {}
    if (folder / QUANTISATION).is_file():
        blocks[QUANTISATION] = json_object((folder / QUANTISATION).read_bytes()) or {}
    return blocks


def configuration_faults(
    folder: Path, modules: Mapping[str, Module], tensors: Mapping[str, Entry]
) -> Iterator[PackError]:
    """Every place where a block and the headers say different things, in either direction."""
    for file, block in quantisation_blocks(folder).items():
        storage = block.get("tensor_storage")
        if isinstance(storage, dict):
            told = {name: value for name, value in storage.items() if isinstance(value, dict)}
            for name in sorted(storage.keys() - told.keys()):
                yield _fault(
                    "module is declared in another form", f"{folder / file} {name}", "an object", storage[name]
                )
            yield from _modules(folder / file, told, modules)
            yield from _stored(folder / file, told, tensors)
        yield from _mean(folder / file, block, modules, tensors)


def _fault(what: str, where: str, expected: object, found: object) -> PackError:
    return PackError(Fault.CONFIGURATION, what, where=where, expected=str(expected), found=str(found))


def _modules(file: Path, storage: Mapping[str, Any], modules: Mapping[str, Module]) -> Iterator[PackError]:
    told = {name: value for name, value in storage.items() if value.get("quant_format") == "exl3"}
    if not told:
        return
    for name in sorted(set(told) | set(modules)):
        where, module = f"{file} {name}", modules.get(name)
        if module is None:
            yield _fault("module is declared but not packed", where, "a trellis", "none")
        elif name not in told:
            yield _fault("module is packed but not declared", where, f"{module.bits} bits", "nothing")
        else:
            bits, book = told[name].get("bits_per_weight"), told[name].get("codebook", module.codebook.value)
            if bits != module.bits:
                yield _fault("configuration and headers disagree on a module's bits", where, module.bits, bits)
            if book != module.codebook.value:
                yield _fault("configuration and headers disagree on a codebook", where, module.codebook.value, book)


def _stored(file: Path, storage: Mapping[str, Any], tensors: Mapping[str, Entry]) -> Iterator[PackError]:
    """Blocks that list each module's tensors with their shapes."""
    for module, value in storage.items():
        listed = value.get("stored_tensors", {})
        if not isinstance(listed, dict):
            yield _fault("tensors are declared in another form", f"{file} {module}", "an object", listed)
            continue
        for name, told in listed.items():
            entry = tensors.get(name)
            if entry is None:
                yield _fault("tensor is declared but not packed", f"{file} {module}", name, "none")
            elif not isinstance(told, dict) or told.get("shape", list(entry.shape)) != list(entry.shape):
                yield _fault("configuration and headers disagree on a shape", f"{file} {name}", entry.shape, told)


def _mean(
    file: Path, block: Mapping[str, Any], modules: Mapping[str, Module], tensors: Mapping[str, Entry]
) -> Iterator[PackError]:
    bits = block.get("bits")
    if block.get("quant_method") != "exl3" or not isinstance(bits, int | float) or not modules:
        return
    weights = sum(module.weights for module in modules.values())
    physical = sum(module.weights * module.bits for module in modules.values()) / weights
    if not abs(bits - physical) <= _MEAN_TOLERANCE:  # so that NaN, which JSON readers take, is a fault
        by_layer = "; ".join(
            f"{name}: {', '.join(f'K={bits}' for bits in sorted(layer.bits))}"
            for name, layer in layers(tensors, modules).items()
            if layer.bits
        )
        yield _fault(
            "configuration and headers disagree on the bits a weight", str(file), f"{physical:.4f} ({by_layer})", bits
        )
