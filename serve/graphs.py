"""What the pools of captured graphs hold on a GPU, where shapes alone decide it: a rule about torch's allocator.

Tensors of up to 1 MiB lie in segments of 2 MiB, and a graph's pool holds whole segments. A capture runs on a stream of
its own, and blocks of a pool belong to a stream: so each set of graphs (one for each pattern of variants) takes
segments of its own. Where all tensors that a layer makes for the largest captured step would fit into one if they lived
at once, each set holds exactly one. Where not, it depends on when each is freed: no rule, unknown.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from pydantic import JsonValue

SEGMENT, LARGEST_SMALL = 2 << 20, 1 << 20
"""Of torch's allocator: a segment for small tensors, and the largest of these."""
_ROUNDING = 512
_TENSORS = 64
"""More tensors than one layer makes, each rounded up to 512 bytes."""
_SPLITS = 32
"""Parts into which vLLM lets FlashAttention 3 split a captured step: a float32 output for each."""


def graph_bytes(
    config: Mapping[str, Any],
    arguments: Mapping[str, JsonValue],
    variants: Collection[str],
    *,
    measured: Mapping[str, int] | None = None,
) -> int | None:
    """Bytes of the captured sets of ``variants`` on each rank: 0 where nothing is captured, None where no rule decides.

    ``config`` is the pack's. ``measured`` is what the set of each variant held in a signed report of the seat, if there
    is one.
    """
    if measured and measured.keys() >= set(variants):
        return sum(measured[variant] for variant in variants)
    return _by_rule(config, arguments, len(variants))


def _by_rule(config: Mapping[str, Any], arguments: Mapping[str, JsonValue], sets: int) -> int | None:
    compilation = arguments.get("compilation_config")
    sizes = compilation.get("cudagraph_capture_sizes") if isinstance(compilation, dict) else None
    if not isinstance(sizes, list) or not sizes or arguments.get("enforce_eager") is not False:
        return 0
    names = ("hidden_size", "intermediate_size", "moe_intermediate_size", "n_routed_experts", "num_experts_per_tok")
    heads = ("num_attention_heads", "num_key_value_heads", "head_dim")
    if arguments.get("speculative_config") or not {*names, *heads} <= config.keys():
        return None
    rows, ranks = max(int(str(size)) for size in sizes), int(str(arguments.get("tensor_parallel_size", 1)))
    hidden, wide, narrow, experts, topk = (int(config[name]) for name in names)
    queries, pairs, width = (int(config[name]) for name in heads)
    queries, pairs = max(1, queries // ranks), max(1, pairs // ranks)
    shared = int(config.get("n_shared_experts") or 0) * narrow
    parts = {
        "attention's parts": _SPLITS * queries * width * 4,
        "attention's sums": _SPLITS * queries * 4,
        "queries, keys, values, twice, and the answer": (2 * (queries + 2 * pairs) + queries) * width * 2,
        "residual, norm, both projections and their sum": 5 * hidden * 2,
        "router": experts * 8 * 4,
        "routes, chosen and sorted": topk * 8 * 8,
        "routed experts in half, float32 and the model's type": hidden * (2 + 4 + 2),
        "gate and up: apart, side by side, converted, multiplied": max(wide, shared) // ranks * 8 * 2,
        "down: in and out, converted": max(wide, shared) // ranks * 2 * 2 + hidden * 2 * 2,
    }
    largest, together = rows * max(parts.values()), rows * sum(parts.values()) + _TENSORS * _ROUNDING
    return sets * SEGMENT if largest <= LARGEST_SMALL and together <= SEGMENT else None


__all__ = ["LARGEST_SMALL", "SEGMENT", "graph_bytes"]
