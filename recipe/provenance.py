"""A product's provenance against what its files say: every field is compared, so that none is taken on trust.

And what a product hands on of its source's own making, so that a chain of products still says where each part is from.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from recipe.closure import json_object
from runner.digest import sha256_bytes
from runner.model.product import PROVENANCE

_SHOWN = 20
"""Differences named one by one: a pack has thousands of tensors."""


def history_of(pack: Path) -> list[dict[str, Any]]:
    """What was made of what before ``pack`` was there, oldest first; the last entry is how ``pack`` itself was made.

    Each entry is a provenance without the history that it bore, and the digest of its file. Empty for a pack that no
    recipe made; a file of that name that is no JSON object is told by its digest alone.
    """
    file = pack / PROVENANCE
    if not file.is_file():
        return []
    content = file.read_bytes()
    told = json_object(content)
    before = told.pop("history", []) if told is not None else []
    earlier = before if isinstance(before, list) and all(isinstance(each, dict) for each in before) else []
    return [*earlier, {"digest": sha256_bytes(content), "provenance": told}]


def provenance_faults(told: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    """A line for each place where ``told`` says other things than ``wanted``, which was read from the files."""
    found = _differences(told, json.loads(json.dumps(wanted)), "")
    shown = list(islice(found, _SHOWN))
    more = sum(1 for _ in found)
    return shown + ([f"{PROVENANCE} is wrong in {more} places more"] if more else [])


def _differences(told: object, wanted: object, place: str) -> Iterator[str]:
    if isinstance(told, Mapping) and isinstance(wanted, Mapping):
        for name in sorted(told.keys() | wanted.keys()):
            inside = f"{place}: {name}" if place else str(name)
            if name not in told:
                yield f"{PROVENANCE} says nothing of {inside}"
            elif name not in wanted:
                yield f"{PROVENANCE} speaks of {inside}, which nobody can check"
            else:
                yield from _differences(told[name], wanted[name], inside)
    elif isinstance(told, list) and isinstance(wanted, list) and len(told) == len(wanted):
        for number, (mine, theirs) in enumerate(zip(told, wanted, strict=True)):
            yield from _differences(mine, theirs, f"{place}[{number}]")
    elif type(told) is not type(wanted) or told != wanted:
        yield f"{PROVENANCE} says {_short(told)} of {place}, the files say {_short(wanted)}"


def _short(value: object) -> str:
    text = json.dumps(value, ensure_ascii=True)
    return text if len(text) <= 80 else f"{text[:77]}..."
