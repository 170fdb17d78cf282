"""vLLM's side of the quantisation method ``exl3``: which module gets which method."""

from __future__ import annotations

from typing import Any

import torch
from vllm.config import get_current_vllm_config
from vllm.model_executor.layers.fused_moe.routed_experts import RoutedExperts
from vllm.model_executor.layers.linear import LinearBase
from vllm.model_executor.layers.quantization import register_quantization_config
from vllm.model_executor.layers.quantization.base_config import QuantizationConfig, QuantizeMethodBase
from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead

from serve.plugin import deepseek_v4
from serve.plugin.headers import Header, named_by, packed_parts, quantised_parts, read_headers
from serve.plugin.linear import Exl3LinearMethod, PlainLinearMethod
from serve.plugin.routed import Exl3RoutedMethod

NAME = "exl3"


class Exl3Config(QuantizationConfig):
    """Modules with a ``trellis`` in the pack are EXL3, the head too; all others stay as they are."""

    def get_name(self) -> str:
        return NAME

    def get_supported_act_dtypes(self) -> list[torch.dtype]:
        return [torch.float32, torch.bfloat16, torch.float16]

    @classmethod
    def get_min_capability(cls) -> int:
        return 0

    @staticmethod
    def get_config_filenames() -> list[str]:
        return []

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Exl3Config:
        return cls()

    def apply_vllm_mapper(self, hf_to_vllm_mapper: Any) -> None:
        """The served class's own map from names in a pack to names of its modules."""
        self._mapper = hf_to_vllm_mapper

    def headers(self) -> dict[str, Header]:
        """Headers of the served pack by the names that the served class gives its modules."""
        found = read_headers(get_current_vllm_config().model_config.model)
        mapper = getattr(self, "_mapper", None)
        return named_by(mapper.apply_list, found) if mapper is not None else found

    def get_quant_method(self, layer: torch.nn.Module, prefix: str) -> QuantizeMethodBase | None:
        headers = self.headers()
        if isinstance(layer, RoutedExperts):
            if not any(name.startswith(f"{prefix}.0.") for name in headers):
                return None
            return Exl3RoutedMethod(layer.moe_config)
        if isinstance(layer, LinearBase):
            packed = packed_parts(self.packed_modules_mapping, prefix)
            names = quantised_parts(headers, prefix, packed)
            if names and prefix.endswith(".wo_a"):
                deepseek_v4.adapt()
            return Exl3LinearMethod(prefix, names) if names else PlainLinearMethod(prefix)
        if isinstance(layer, ParallelLMHead):
            # Its logits are gathered and cut to the vocabulary, so that how its rows are padded does not matter.
            return Exl3LinearMethod(prefix, [prefix]) if prefix in headers else None
        if prefix in headers:
            raise ValueError(f"{prefix}: an EXL3 {type(layer).__name__} is not served; keep it in 16 bit")
        return None


def register_method() -> None:
    """Make ``exl3`` known to vLLM in this process."""
    register_quantization_config(NAME)(Exl3Config)
