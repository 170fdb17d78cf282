"""Routed experts: vLLM's own routing, then one call of the variant that is switched on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from importlib import import_module
from typing import Any

import torch
from vllm.model_executor.layers.fused_moe.config import FusedMoEConfig, FusedMoEQuantConfig
from vllm.model_executor.layers.fused_moe.fused_moe_method_base import FusedMoEMethodBase
from vllm.model_executor.layers.fused_moe.routed_experts import RoutedExperts
from vllm.model_executor.utils import set_weight_attrs
from vllm.platforms import current_platform

from serve.plugin import dispatch, operators
from serve.plugin.headers import CODEBOOK_MARKERS, PARTS
from serve.plugin.shards import Cut, Loading

SLOTS = {"w1": ("w13", 0), "w3": ("w13", 1), "w2": ("w2", 2)}
"""vLLM's shard name to its parameter prefix and to our place in (gate, up, down)."""


class Exl3RoutedMethod(FusedMoEMethodBase):
    """On a GPU vLLM routes; its CPU build has no top-k kernel for that, so there this method routes for itself.

    The result is the routed experts alone, without the routed scaling factor: vLLM's runner applies that, in place, and
    adds the shared expert.
    """

    def __init__(self, moe: FusedMoEConfig) -> None:
        super().__init__(moe)
        self.loading: list[tuple[Loading, ...]] = []

    @property
    def is_monolithic(self) -> bool:
        return not current_platform.is_cuda()

    def get_fused_moe_quant_config(self, layer: RoutedExperts) -> FusedMoEQuantConfig | None:
        return None

    def maybe_roundup_sizes(
        self, hidden_size: int, intermediate_size_per_partition: int, *_: Any, **__: Any
    ) -> tuple[int, int]:
        """Widths are the pack's own."""
        return hidden_size, intermediate_size_per_partition

    def create_weights(
        self,
        layer: RoutedExperts,
        num_experts: int,
        hidden_size: int,
        intermediate_size_per_partition: int,
        params_dtype: torch.dtype,
        **extra: Any,
    ) -> None:
        """Empty parameters whose loaders keep this rank's share of each expert."""
        parallel = layer.moe_config.moe_parallel_config
        wide = Cut(parallel.tp_rank, parallel.tp_size, "out")
        deep = Cut(parallel.tp_rank, parallel.tp_size, "in")
        self.loading = [
            tuple(
                Loading(f"{layer.layer_name}.<local {expert}>.{name}", cut)
                for name, cut in (("gate_proj", wide), ("up_proj", wide), ("down_proj", deep))
            )
            for expert in range(num_experts)
        ]
        for prefix in ("w13", "w2"):
            for part in (*PARTS, *CODEBOOK_MARKERS):
                parameter = torch.nn.Parameter(torch.empty(0), requires_grad=False)
                set_weight_attrs(parameter, {"weight_loader": self._loader(layer, part)})
                layer.register_parameter(f"{prefix}_{part}", parameter)
        # vLLM takes any three-dimensional expert tensor for all experts fused; a trellis is one expert's.
        layer.load_weights = lambda weights: self._load(layer, weights)

    def process_weights_after_loading(self, layer: RoutedExperts) -> None:
        """Hand the shards to the witness and refuse, under strict, a variant that is not ready."""
        experts = [(gate.finish(), up.finish(), down.finish()) for gate, up, down in self.loading]
        self.loading = []
        self.module = dispatch.prepare().register_experts(
            layer.layer_name, experts, topk=layer.top_k, limit=layer.swiglu_limit or 0.0
        )
        dispatch.check_ready(self.module)

    def apply(  # noqa: PLR0917 (vLLM's signature)
        self,
        layer: RoutedExperts,
        x: torch.Tensor,
        topk_weights: torch.Tensor,
        topk_ids: torch.Tensor,
        shared_experts: Any = None,
        shared_experts_input: torch.Tensor | None = None,
    ) -> torch.Tensor:
        if layer.expert_map is not None:
            topk_ids = layer.expert_map[topk_ids.long()]
        return operators.routed_experts(x, topk_ids, topk_weights, self.module.index)

    def apply_monolithic(
        self,
        layer: RoutedExperts,
        x: torch.Tensor,
        router_logits: torch.Tensor,
        input_ids: torch.Tensor | None = None,
    ) -> torch.Tensor:
        select_experts = _cpu_routing()
        weights, ids = select_experts(
            hidden_states=x,
            router_logits=router_logits,
            top_k=layer.top_k,
            use_grouped_topk=layer.use_grouped_topk,
            renormalize=layer.renormalize,
            topk_group=layer.topk_group,
            num_expert_group=layer.num_expert_group,
            custom_routing_function=layer.custom_routing_function,
            scoring_func=layer.scoring_func,
            e_score_correction_bias=layer.e_score_correction_bias,
        )
        return self.apply(layer, x, weights, ids)

    def _loader(self, layer: RoutedExperts, part: str) -> Callable[..., bool]:
        def load(  # noqa: PLR0917 (vLLM's signature)
            parameter: torch.nn.Parameter,
            tensor: torch.Tensor,
            name: str,
            shard_id: str,
            expert_id: int,
            return_success: bool = True,
        ) -> bool:
            local = layer._map_global_expert_id_to_local_expert_id(expert_id)
            if local < 0:
                return False
            self.loading[local][SLOTS[shard_id][1]].take(part, tensor)
            return True

        return load

    def _load(self, layer: RoutedExperts, weights: Iterable[tuple[str, torch.Tensor]]) -> Iterable[str]:
        shards = {layer.ckpt_gate_proj_name: "w1", layer.ckpt_up_proj_name: "w3", layer.ckpt_down_proj_name: "w2"}
        for name, tensor in weights:
            expert, projection, part = name.split(".")
            shard = shards[projection]
            parameter = f"{SLOTS[shard][0]}_{part}"
            loader = getattr(layer, parameter).weight_loader
            if loader(getattr(layer, parameter), tensor, name, shard_id=shard, expert_id=int(expert)):
                yield parameter


@cache
def _cpu_routing() -> Callable[..., tuple[torch.Tensor, torch.Tensor]]:
    """vLLM's routing in plain torch."""
    try:
        place = import_module("vllm.model_executor.layers.fused_moe.experts.cpu_moe")
    except ImportError:  # vLLM 0.26
        place = import_module("vllm.model_executor.layers.fused_moe.cpu_fused_moe")
    found: Callable[..., tuple[torch.Tensor, torch.Tensor]] = place.select_experts
    return found
