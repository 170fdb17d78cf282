"""What one rank's boot will hold, before it starts: weights from a pack's headers, scratch, KV tokens.

Pure: nothing is loaded. The rules are those by which vLLM divides the modules of Qwen- and GLM-shaped models; a coded
module that no rule names is an error, never a guess (a replicated linear divided by eight once put a fit off by 2 GiB,
campaign 1.2, T5).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from math import prod
from pathlib import Path
from typing import Any, Literal

from pydantic import JsonValue

from recipe.headers import Entry
from recipe.pack import Pack
from runner.errors import InputError
from runner.model.base import Record

Share = Literal["out", "in", "vocabulary", "whole"]
"""Along what a rank's share of a module is cut."""
SHARES: dict[str, Share] = {
    **dict.fromkeys(("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj"), "out"),
    **dict.fromkeys(("o_proj", "down_proj"), "in"),
    **dict.fromkeys(("embed_tokens", "lm_head"), "vocabulary"),
}
"""By the module's last name; norms, routers and biases are whole on every rank."""
VOCABULARY_MULTIPLE = 64
"""vLLM pads the vocabulary before it divides it."""
DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "fp8": 1}
_CODED = ("trellis", "suh", "svh")
_KEPT_IN_FLOAT = ("mlp.gate.weight", "e_score_correction_bias")
"""Routers are computed in float32 whatever the model's type."""

ScratchFormula = Callable[[int, int, int, int, int], int]
"""A kernel's own: bytes for (rows, hidden, intermediate, top-k, experts) of one rank."""


class Device(Record):
    """One device, and what it holds besides weights, scratch and KV: measured once on the seat at these arguments."""

    total_bytes: int
    activation_bytes: int
    graph_bytes: int
    other_bytes: int
    """Context, collectives, the allocator's rounding."""


class RankPrediction(Record):
    """One rank's bytes and tokens as they will be read back."""

    rank: int
    weights_bytes: int
    scratch_bytes: int
    graph_bytes: int
    kv_bytes_per_token: int
    kv_tokens: int


def predict(
    pack: Pack,
    arguments: Mapping[str, JsonValue],
    scratch: ScratchFormula | None = None,
    device: Device | None = None,
) -> tuple[RankPrediction, ...]:
    """Every rank's prediction of a pack that is here, as :func:`predict_for` makes it."""
    return predict_for(configuration(pack.folder), pack.tensors, arguments, scratch, device)


def configuration(folder: Path) -> dict[str, Any]:
    """A pack's configuration as it stands in the folder."""
    found: dict[str, Any] = json.loads((folder / "config.json").read_bytes())
    return found


def predict_for(
    config: Mapping[str, Any],
    tensors: Mapping[str, Entry],
    arguments: Mapping[str, JsonValue],
    scratch: ScratchFormula | None = None,
    device: Device | None = None,
) -> tuple[RankPrediction, ...]:
    """Every rank's prediction under these engine arguments; ``scratch`` of the variant, none on a processor.

    KV gets ``kv_cache_memory_bytes`` where the arguments name them, else what is left of ``device``. Raises InputError
    for a model, type or memory budget that no rule covers.
    """
    ranks, rows = _whole(arguments, "tensor_parallel_size"), _whole(arguments, "max_num_batched_tokens")
    dtype = str(arguments.get("dtype") or config.get("dtype"))
    token = kv_bytes_per_token(config, ranks, str(arguments.get("kv_cache_dtype", "auto")), dtype)
    weights = sum(_bytes(entry, ranks, _size(dtype), config) for entry in _served(tensors, config))
    held = scratch(rows, *_routed(config, ranks)) if scratch else 0
    block = _whole(arguments, "block_size")
    if device is None or arguments.get("kv_cache_memory_bytes") is not None:
        budget = _whole(arguments, "kv_cache_memory_bytes")
    else:
        others = {"activations": device.activation_bytes, "graphs": device.graph_bytes, "other": device.other_bytes}
        held_by_name = {"weights": weights, "scratch": held, **others}
        budget = kv_budget(device.total_bytes, arguments.get("gpu_memory_utilization"), held_by_name)
    one = RankPrediction(
        rank=0,
        weights_bytes=weights,
        scratch_bytes=held,
        graph_bytes=device.graph_bytes if device else 0,
        kv_bytes_per_token=token,
        kv_tokens=budget // (token * block) * block,
    )
    return tuple(one.model_copy(update={"rank": rank}) for rank in range(ranks))


def _routed(config: Mapping[str, Any], ranks: int) -> tuple[int, int, int, int]:
    """Hidden, intermediate, top-k and experts of one rank's routed layers. Raises InputError for a dense model."""
    names = ("hidden_size", "moe_intermediate_size", "num_experts_per_tok", "n_routed_experts")
    if absent := [name for name in names if name not in config]:
        raise InputError("no rule for the routed experts' scratch", where="config.json", found=f"no {absent[0]}")
    hidden, intermediate, topk, experts = (int(config[name]) for name in names)
    return hidden, intermediate // ranks, topk, experts


def kv_bytes_per_token(config: Mapping[str, Any], ranks: int, kv_dtype: str, dtype: str) -> int:
    """Bytes of one token's keys and values on one rank. Raises InputError for attention that keeps something else."""
    if "kv_lora_rank" in config or not {"num_hidden_layers", "num_key_value_heads", "head_dim"} <= config.keys():
        raise InputError("no rule for this model's KV cache", where="config.json", found=str(config.get("model_type")))
    heads = max(1, config["num_key_value_heads"] // ranks)
    size = _size(dtype if kv_dtype == "auto" else kv_dtype)
    return int(2 * config["num_hidden_layers"] * heads * config["head_dim"] * size)


def kv_budget(device_bytes: int, utilisation: JsonValue, held: Mapping[str, int]) -> int:
    """Bytes left for KV on a device of which ``utilisation`` (decimal text) may be used, after all that is ``held``.

    Raises InputError for no such number, and where nothing is left with what takes how much.
    """
    if not isinstance(utilisation, str):
        where = "gpu_memory_utilization"
        raise InputError("the prediction needs this engine argument", where=where, found=str(utilisation))
    budget = int(device_bytes * Decimal(utilisation)) - sum(held.values())
    if budget <= 0:
        took = ", ".join(f"{name} {size}" for name, size in held.items())
        raise InputError("nothing is left for KV", expected="more than 0 bytes", found=f"{budget}: {took}")
    return budget


def _served(tensors: Mapping[str, Entry], config: Mapping[str, Any]) -> Iterator[Entry]:
    """Tensors of the served layers; a draft layer beyond the last is only loaded to speculate."""
    layers = config["num_hidden_layers"]
    for name, entry in tensors.items():
        parts = name.split(".")
        number = next((int(part) for part in parts if part.isdigit()), 0)
        if number < layers and not (config.get("tie_word_embeddings") and parts[0] == "lm_head"):
            yield entry


def _bytes(entry: Entry, ranks: int, dtype_bytes: int, config: Mapping[str, Any]) -> int:
    """Bytes of one tensor on one rank as the engine holds it."""
    module, _, part = entry.name.rpartition(".")
    share = SHARES.get(module.rpartition(".")[2], "whole")
    if part in _CODED:
        if share not in ("out", "in"):
            raise InputError(
                "no rule says how this coded module is divided", where=entry.name, expected=", ".join(SHARES)
            )
        cut = {"trellis": True, "suh": share == "in", "svh": share == "out"}[part]
        return entry.nbytes // ranks if cut else entry.nbytes
    if part in ("mcg", "mul1"):
        return 0
    size = 4 if entry.name.endswith(_KEPT_IN_FLOAT) else dtype_bytes
    if share == "vocabulary":
        rows = -(-entry.shape[0] // VOCABULARY_MULTIPLE) * VOCABULARY_MULTIPLE
        return rows // ranks * prod(entry.shape[1:]) * size
    parts = ranks if share in ("out", "in") else 1
    if module.endswith(("k_proj", "v_proj")):
        parts = min(ranks, config["num_key_value_heads"])  # a rank has at least one head, shared where they are few
    return prod(entry.shape) // parts * size


def _size(dtype: str) -> int:
    if dtype not in DTYPE_BYTES:
        raise InputError("no such element type", expected=", ".join(DTYPE_BYTES), found=dtype)
    return DTYPE_BYTES[dtype]


def _whole(arguments: Mapping[str, JsonValue], name: str) -> int:
    value = arguments.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InputError("the prediction needs this engine argument", where=name, expected="a number", found=str(value))
    return value


__all__ = [
    "Device",
    "RankPrediction",
    "ScratchFormula",
    "configuration",
    "kv_budget",
    "kv_bytes_per_token",
    "predict",
    "predict_for",
]
