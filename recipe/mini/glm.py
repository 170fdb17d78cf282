"""Which modules of a small Glm4Moe model are coded in EXL3, and at how many bits a weight.

Coded are the matrices that make up the model's size: routed experts, shared experts and the dense layers' MLP.
Attention, router, norms, embeddings, head and the draft layer's projection stay in 16 bit (the router in float32).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

PROJECTIONS = ("gate_proj", "up_proj", "down_proj")

ExpertBits = Sequence[tuple[int, int]]
"""For each layer with routed experts, cycled: bits of the gate and up projections, bits of the down projection."""


def coded_modules(config: Mapping[str, Any], expert_bits: ExpertBits, mlp_bits: int) -> dict[str, int]:
    """Module name to bits a weight, for every layer of ``config`` (a ``config.json``), draft layers included."""
    layers = config["num_hidden_layers"] + config["num_nextn_predict_layers"]
    dense = config["first_k_dense_replace"]
    coded: dict[str, int] = {}
    for layer in range(layers):
        prefix = f"model.layers.{layer}.mlp"
        if layer < dense:
            coded |= {f"{prefix}.{name}": mlp_bits for name in PROJECTIONS}
            continue
        inner, down = expert_bits[(layer - dense) % len(expert_bits)]
        for expert in range(config["n_routed_experts"]):
            coded |= {f"{prefix}.experts.{expert}.{name}": inner for name in PROJECTIONS[:2]}
            coded[f"{prefix}.experts.{expert}.{PROJECTIONS[2]}"] = down
        coded |= {f"{prefix}.shared_experts.{name}": mlp_bits for name in PROJECTIONS}
    return coded


def layer_of(tensor: str) -> int | None:
    """The layer a tensor belongs to; None for embeddings, final norm and head."""
    parts = tensor.split(".")
    return int(parts[2]) if parts[:2] == ["model", "layers"] else None
