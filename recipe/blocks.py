"""Where a pack tells how it is coded: the quantisation blocks of every place where engines look."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from recipe.closure import QUANTISATION

CONFIG = "config.json"
BLOCK, COMPRESSION = "quantization_config", "compression_config"
"""``compression_config`` is the older name that compressed-tensors gives its own."""
_INNER = "text_config"
"""Of models that see or hear: the language model's configuration, one level below."""

Contents = dict[str, dict[str, Any]]
"""Configuration files by name."""


class Place(NamedTuple):
    """One place where a quantisation block may stand; without keys it is the whole file."""

    file: str
    keys: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.file if self in (OWN_FILE, USUAL) else f"{self.file}: {'.'.join(self.keys)}"


OWN_FILE, USUAL = Place(QUANTISATION), Place(CONFIG, (BLOCK,))
PLACES = (
    USUAL,
    *(Place(CONFIG, keys) for keys in ((_INNER, BLOCK), (COMPRESSION,), (_INNER, COMPRESSION))),
    OWN_FILE,
)
"""vLLM reads them in this order, the last excepted (``model_loader/weight_utils.py``); that is exllamav3's."""


def blocks_of(contents: Mapping[str, Mapping[str, Any]]) -> dict[Place, Any]:
    """Every block that stands in these files, whatever its form."""
    found: dict[Place, Any] = {}
    for place in PLACES:
        at: Any = contents.get(place.file)
        for key in place.keys:
            at = at.get(key) if isinstance(at, Mapping) else None
        if at is not None:
            found[place] = at
    return found


def with_blocks(contents: Contents, blocks: Mapping[Place, Any], without: Iterable[Place] = ()) -> Contents:
    """The files with these blocks in their places, and none at the places of ``without``."""
    made = copy.deepcopy(contents)
    for place, block in blocks.items():
        if not place.keys:
            made[place.file] = block
            continue
        at = made[place.file]
        for key in place.keys[:-1]:
            at = at.setdefault(key, {})
        at[place.keys[-1]] = block
    for place in without:
        at = made[place.file]
        for key in place.keys[:-1]:
            at = at.get(key, {})
        at.pop(place.keys[-1], None)
    return made
