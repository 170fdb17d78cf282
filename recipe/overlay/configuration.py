"""The product's configuration: the order's edits, and a quantisation block that says what the new headers say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from recipe.blocks import BLOCK, COMPRESSION, CONFIG, with_blocks
from recipe.census import module_of
from recipe.closure import json_object
from recipe.configured import all_anew, contents_faults, quantisation_blocks
from recipe.headers import Entry
from recipe.overlay.splice import Plan
from recipe.overlay.target import tensors_of
from recipe.pack import Pack
from runner.errors import InputError
from runner.model.order import Overlay

_DERIVED = frozenset({BLOCK, COMPRESSION})
"""Where engines look for how a pack is coded: derived from the headers, so no edit may say it."""


def configurations(recipe: Overlay, plan: Plan, tensors: Mapping[str, Entry]) -> dict[str, dict[str, Any]]:
    """Every configuration file of the product by name; ``tensors`` and their places are the product's.

    Raises InputError for an edit whose path is not there, or that would say what is derived.
    """
    config = edited_configuration(recipe, plan.source)
    return with_blocks({CONFIG: config}, all_anew(quantisation_blocks(plan.source.folder), tensors, config))


def edited_configuration(recipe: Overlay, source: Pack) -> dict[str, Any]:
    """The source's ``config.json`` with the order's edits, its quantisation block as it was. Raises InputError."""
    made = json_object((source.folder / CONFIG).read_bytes()) or {}
    for path in recipe.configuration.remove:
        parent, key = _place(made, path)
        if key not in parent:
            raise InputError("an edit removes what is not there", where=f"{CONFIG}: {path}", expected=key, found="none")
        _refuse_derived(path, parent[key])
        del parent[key]
    for path, value in recipe.configuration.set.items():
        _refuse_derived(path, value)
        parent, key = _place(made, path)
        _refuse_derived(path, parent.get(key))
        parent[key] = value
    return made


def check_configurations(recipe: Overlay, plan: Plan) -> None:
    """What the product's configuration will say against what its headers will, before a byte is written.

    Raises the first fault (PackError), and InputError as :func:`configurations`.
    """
    tensors = tensors_of(plan)
    contents = configurations(recipe, plan, tensors)
    names = {*plan.modules, *plan.source.modules} & {name.rpartition(".")[0] for name in tensors}
    modules = {name: module_of(name, tensors) for name in sorted(names) if f"{name}.trellis" in tensors}
    for fault in contents_faults(plan.source.folder, contents, modules, tensors):
        raise fault


def _refuse_derived(path: str, value: object) -> None:
    if _DERIVED & {*path.split("."), *_keys(value)}:
        raise InputError(
            "an edit would say what is derived from the headers",
            where=f"{CONFIG}: {path}",
            expected=f"edits beside {' and '.join(sorted(_DERIVED))}",
            found=path,
            next_step="leave the edit out: the quantisation block is written anew for the product's tensors",
        )


def _keys(value: object) -> set[str]:
    """Every key at any depth."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    own = set(value) if isinstance(value, dict) else set()
    return own.union(*map(_keys, inner))


def _place(config: dict[str, Any], path: str) -> tuple[dict[str, Any], str]:
    *way, key = path.split(".")
    at: Any = config
    for part in way:
        at = at.get(part) if isinstance(at, dict) else None
    if not isinstance(at, dict):
        raise InputError("an edit leads nowhere", where=f"{CONFIG}: {path}", expected="an object", found=str(at))
    return at, key
