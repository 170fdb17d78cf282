"""What a configuration says of the model's size, against the tensors that are there.

A configuration of another size loads another model, or half of this one, before anything else goes wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from recipe.census import Module, layer_of
from recipe.headers import Entry, Fault, PackError

_LAYER = re.compile(r"^((?:(?:model|language_model|text_model)\.)*layers)\.(\d+)\.")
"""The language model's layers; those of a tower for images or sound stand below another name."""
_EXPERT = re.compile(r"^(.*\.experts)\.(\d+)\.")
_EMBEDDING = re.compile(r"^(?:(?:model|language_model|text_model)\.)*embed(?:_tokens)?\.weight$")
_EXPERTS = ("n_routed_experts", "num_experts", "num_local_experts")
_DRAFT = re.compile(r"nextn|mtp")
"""In the names of draft layers and of their counts; they may stand behind the model's own instead."""
_INTO, _OUT_OF = ("gate_proj", "up_proj", "w1", "w3"), ("down_proj", "w2")
"""Projections of an expert into its middle, and out of it."""
_PADDED = 128
"""Some writers fill coded matrices up to a multiple of this."""


def size_faults(
    file: Path, config: Mapping[str, Any], modules: Mapping[str, Module], tensors: Mapping[str, Entry]
) -> Iterator[PackError]:
    """Layers, experts and widths that ``config`` (read from ``file``) tells otherwise than the tensors are."""
    told = _language(config)
    yield from _layers(file, told, tensors)
    yield from _experts(file, told, tensors)
    yield from _widths(file, told, modules, tensors)


def is_draft(config: Mapping[str, Any], tensor: str) -> bool:
    """Whether a tensor is of a draft layer: one behind the model's own by ``config``, or under a name of drafts."""
    own, number = own_layers(config), layer_of(tensor).rpartition(".")[2]
    return bool(_DRAFT.search(tensor)) or (own is not None and number.isdecimal() and int(number) >= own)


def own_layers(config: Mapping[str, Any]) -> int | None:
    """How many layers the language model has without its drafts; None where the configuration does not say."""
    for told in (_language(config), config):
        count: Any = told.get("num_hidden_layers")
        if _whole(count):
            return int(count)
    return None


def _language(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The language model's part, which models that see or hear have one level below."""
    inner = config.get("text_config")
    return inner if isinstance(inner, dict) else config


def _layers(file: Path, told: Mapping[str, Any], tensors: Mapping[str, Entry]) -> Iterator[PackError]:
    found: dict[str, set[int]] = {}
    for match in filter(None, map(_LAYER.match, tensors)):
        found.setdefault(match[1], set()).add(int(match[2]))
    if not found or told.get("num_hidden_layers") is None:
        return
    count = told["num_hidden_layers"]
    if not _whole(count):
        yield _fault(file, "num_hidden_layers", "a whole number", count)
        return
    drafts = sum(value for name, value in told.items() if _DRAFT.search(name) and _whole(value))
    for prefix, numbers in found.items():
        if len(numbers) < count or not numbers.issuperset(range(count)):
            absent = next(number for number in range(count) if number not in numbers)
            yield _fault(file, "num_hidden_layers", f"no {prefix}.{absent}", count)
        elif max(numbers) >= count + drafts:
            yield _fault(file, "num_hidden_layers", f"{prefix}.{max(numbers)} too", f"{count} and {drafts} drafts")


def _experts(file: Path, told: Mapping[str, Any], tensors: Mapping[str, Entry]) -> Iterator[PackError]:
    found: dict[str, set[int]] = {}
    for match in filter(None, map(_EXPERT.match, tensors)):
        found.setdefault(match[1], set()).add(int(match[2]))
    for name in _EXPERTS:
        count = told.get(name)
        if count is None or isinstance(count, list):  # some architectures tell it layer by layer
            continue
        for prefix, numbers in sorted(found.items()):
            if not _whole(count) or len(numbers) != count or max(numbers) != count - 1:
                yield _fault(file, name, f"{len(numbers)}, up to {prefix}.{max(numbers)}", count)
                break


def _widths(
    file: Path, told: Mapping[str, Any], modules: Mapping[str, Module], tensors: Mapping[str, Entry]
) -> Iterator[PackError]:
    for name, entry in tensors.items():
        hidden = told.get("hidden_size")
        if _EMBEDDING.match(name) and len(entry.shape) == 2 and hidden is not None and hidden != entry.shape[1]:
            yield _fault(file, "hidden_size", f"{entry.shape[1]} ({name})", hidden)
    for key, inputs, outputs in (("hidden_size", _INTO, _OUT_OF), ("moe_intermediate_size", _OUT_OF, _INTO)):
        size = told.get(key)
        if size is None or isinstance(size, list):
            continue
        for name, module in modules.items():
            part = name.rpartition(".")[2]
            if _EXPERT.match(f"{name}.") and part in inputs + outputs:
                actual = module.in_features if part in inputs else module.out_features
                if not _whole(size) or actual not in (size, -(-size // _PADDED) * _PADDED):
                    yield _fault(file, key, f"{actual} ({name})", size)
                    break


def _whole(value: object) -> bool:
    return type(value) is int and value >= 0


def _fault(file: Path, key: str, expected: str, found: object) -> PackError:
    what = f"configuration and headers disagree on {key}"
    return PackError(Fault.CONFIGURATION, what, where=str(file), expected=expected, found=str(found))
