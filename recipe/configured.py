"""What a pack's configuration says of its coded modules, against what the headers say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from carve_kernels.exl3 import pack_format

from recipe.census import Module, layers, module_of
from recipe.closure import json_object
from recipe.headers import Entry, Fault, PackError

CONFIG = "config.json"
QUANTISATION = "quantization_config.json"
"""A file of its own in packs of exllamav3's making; ours keep the block inside ``config.json``."""
_TORCH = {"I16": "torch.int16", "F16": "torch.float16", "I32": "torch.int32"}
_TORCH |= {"BF16": "torch.bfloat16", "F32": "torch.float32"}
"""How exllamav3 names types in ``stored_tensors``."""
_MEAN_TOLERANCE = 0.1
"""Bits a weight: a mean is rounded, and some writers leave the head out of it."""


def quantisation_blocks(folder: Path) -> dict[str, dict[str, Any]]:
    """Every quantisation block of the pack, by the file it stands in."""
    inside = (json_object((folder / CONFIG).read_bytes()) or {}).get("quantization_config")
    blocks = {CONFIG: inside} if isinstance(inside, dict) else {}
    if (folder / QUANTISATION).is_file():
        blocks[QUANTISATION] = json_object((folder / QUANTISATION).read_bytes()) or {}
    return blocks


def anew(block: Mapping[str, Any], tensors: Mapping[str, Entry]) -> dict[str, Any]:
    """A quantisation block for a pack of these ``tensors``; what it says of one that is as it was stays."""
    made = dict(block)
    coded = {name: module_of(name, tensors) for name in pack_format.modules(tensors)}
    storage = made.get("tensor_storage")
    if isinstance(storage, dict):
        own: dict[str, dict[str, Entry]] = {}
        for name, entry in tensors.items():
            own.setdefault(name.rpartition(".")[0], {})[name] = entry
        listed = any("stored_tensors" in value for value in storage.values())
        told = {
            name: _told(storage.get(name, {}), coded.get(name), own[name], listed=listed)
            for name in storage.keys() | coded.keys()
            if name in own
        }
        made["tensor_storage"] = dict(sorted(told.items()))
    if "bits" in made and coded:
        weights = sum(module.weights for module in coded.values())
        made["bits"] = round(sum(module.weights * module.bits for module in coded.values()) / weights, 4)
    return made


def _told(before: Mapping[str, Any], coded: Module | None, own: Mapping[str, Entry], *, listed: bool) -> dict[str, Any]:
    """What a block says of one module, whose tensors are ``own``."""
    stored: dict[str, Any] = {}
    if listed:
        stored["stored_tensors"] = {
            name: {"shape": list(entry.shape), "n_bytes": entry.nbytes, "dtype": _TORCH.get(entry.dtype, entry.dtype)}
            for name, entry in own.items()
        }
    if coded is None:
        plain = {name: value for name, value in before.items() if name not in ("quant_format", "bits_per_weight")}
        return plain | (stored if "stored_tensors" in before else {})
    same = before.get("bits_per_weight") == coded.bits and before.get("quant_format") == "exl3"
    fits = before.get("codebook", coded.codebook.value) == coded.codebook.value
    if same and fits and before.get("stored_tensors", {}).keys() == stored.get("stored_tensors", {}).keys():
        return {**before, **stored}
    book = {} if listed else {"codebook": coded.codebook.value}
    return {"quant_format": "exl3", "bits_per_weight": coded.bits} | book | stored


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
