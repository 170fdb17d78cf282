"""The product's configuration: the order's edits, and a quantisation block that says what the new headers say."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from recipe.closure import json_object
from recipe.configured import CONFIG, anew, quantisation_blocks
from recipe.headers import Entry
from recipe.overlay.splice import Plan
from runner.errors import InputError
from runner.model.order import Overlay


def configurations(recipe: Overlay, plan: Plan, tensors: Mapping[str, Entry]) -> dict[str, dict[str, Any]]:
    """Every configuration file of the product by name; ``tensors`` and their places are the product's.

    Raises InputError for an edit whose path is not there.
    """
    source = plan.source.folder
    config = json_object((source / CONFIG).read_bytes()) or {}
    written = {file: anew(block, tensors) for file, block in quantisation_blocks(source).items()}
    edited = config | ({"quantization_config": written.pop(CONFIG)} if CONFIG in written else {})
    return {CONFIG: _edited(edited, recipe), **written}


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
