"""The product's configuration: the order's edits, and a quantisation block that says what the new headers say."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from recipe.census import Module
from recipe.closure import json_object
from recipe.configured import CONFIG, quantisation_blocks
from recipe.headers import Entry
from recipe.overlay.splice import Plan
from runner.errors import InputError
from runner.model.order import Overlay

_TORCH = {"I16": "torch.int16", "F16": "torch.float16", "I32": "torch.int32"}
"""How exllamav3 names types in ``stored_tensors``."""


def configurations(recipe: Overlay, plan: Plan, tensors: Mapping[str, Entry]) -> dict[str, dict[str, Any]]:
    """Every configuration file of the product by name; ``tensors`` and their places are the product's.

    Raises InputError for an edit whose path is not there.
    """
    source = plan.source.folder
    config = json_object((source / CONFIG).read_bytes()) or {}
    gone = {entry.name.rpartition(".")[0] for entry in plan.dropped}
    coded = {name: module for name, module in plan.source.modules.items() if name not in gone} | plan.modules
    written = {}
    for file, block in quantisation_blocks(source).items():
        written[file] = _derived(block, plan, coded, tensors)
    edited = config | ({"quantization_config": written.pop(CONFIG)} if CONFIG in written else {})
    return {CONFIG: _edited(edited, recipe), **written}


def _derived(
    block: dict[str, Any], plan: Plan, coded: Mapping[str, Module], tensors: Mapping[str, Entry]
) -> dict[str, Any]:
    made = copy.deepcopy(block)
    storage = made.get("tensor_storage")
    if isinstance(storage, dict):
        for entry in plan.dropped:
            storage.pop(entry.name.rpartition(".")[0], None)
        listed = any("stored_tensors" in value for value in storage.values())
        for name, module in plan.modules.items():
            storage[name] = {"quant_format": "exl3", "bits_per_weight": module.bits}
            storage[name] |= _stored(name, tensors) if listed else {"codebook": module.codebook.value}
        made["tensor_storage"] = dict(sorted(storage.items()))
    if "bits" in made and coded:
        weights = sum(module.weights for module in coded.values())
        made["bits"] = round(sum(module.weights * module.bits for module in coded.values()) / weights, 4)
    return made


def _stored(module: str, tensors: Mapping[str, Entry]) -> dict[str, Any]:
    own = {name: entry for name, entry in tensors.items() if name.rpartition(".")[0] == module}
    described = {
        name: {"shape": list(entry.shape), "n_bytes": entry.nbytes, "dtype": _TORCH[entry.dtype]}
        for name, entry in own.items()
    }
    return {"stored_tensors": described}


def _edited(config: dict[str, Any], recipe: Overlay) -> dict[str, Any]:
    made = copy.deepcopy(config)
    for path in recipe.configuration.remove:
        parent, key = _place(made, path)
        if key not in parent:
            raise InputError("an edit removes what is not there", where=f"{CONFIG}: {path}", expected=key, found="none")
        del parent[key]
    for path, value in recipe.configuration.set.items():
        parent, key = _place(made, path)
        parent[key] = value
    return made


def _place(config: dict[str, Any], path: str) -> tuple[dict[str, Any], str]:
    *way, key = path.split(".")
    at: Any = config
    for part in way:
        at = at.get(part) if isinstance(at, dict) else None
    if not isinstance(at, dict):
        raise InputError("an edit leads nowhere", where=f"{CONFIG}: {path}", expected="an object", found=str(at))
    return at, key
