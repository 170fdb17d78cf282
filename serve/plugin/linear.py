"""Linear modules: EXL3 through the incumbent's native linear, and 16-bit ones left to vLLM."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from vllm.model_executor.layers.linear import (
    LinearMethodBase,
    QKVParallelLinear,
    ReplicatedLinear,
    RowParallelLinear,
    UnquantizedLinearMethod,
)
from vllm.model_executor.utils import set_weight_attrs

from serve.plugin import dispatch, operators
from serve.plugin.headers import CODEBOOK_MARKERS, PARTS
from serve.plugin.shards import Cut, Loading, columns
from serve.plugin.together import Together
from serve.witness.processor import Linear


class PlainLinearMethod(UnquantizedLinearMethod):
    """vLLM's own method; the loaded bytes enter the weights digest before vLLM repacks them."""

    def __init__(self, prefix: str) -> None:
        super().__init__()
        self.prefix = prefix

    def process_weights_after_loading(self, layer: torch.nn.Module) -> None:
        if layer.weight.numel():
            dispatch.prepare().note_payload(self.prefix, [layer.weight])
        super().process_weights_after_loading(layer)


class Exl3LinearMethod(LinearMethodBase):
    """One EXL3 linear, or several packed side by side (gate and up; query, key and value)."""

    def __init__(self, prefix: str, names: list[str]) -> None:
        self.prefix = prefix
        self.names = names
        """Checkpoint names of the matrices in the order in which their outputs lie."""
        self.groups: list[Linear] = []
        """One for each group of a batched product (DeepSeek-V4's ``wo_a``); empty for every other linear."""
        self.together: Together | None = None
        """Where another linear reads the same input and one launch serves both."""

    def create_weights(  # noqa: PLR0917 (vLLM's signature)
        self,
        layer: torch.nn.Module,
        input_size_per_partition: int,
        output_partition_sizes: list[int],
        input_size: int,
        output_size: int,
        params_dtype: torch.dtype,
        **extra: Any,
    ) -> None:
        """Empty parameters whose loaders keep this rank's share; widths and bits come from the tensors themselves."""
        self.loading = [Loading(name, self._cut(layer, place)) for place, name in enumerate(self.names)]
        for part in (*PARTS, *CODEBOOK_MARKERS):
            parameter = torch.nn.Parameter(torch.empty(0), requires_grad=False)
            set_weight_attrs(parameter, {"weight_loader": self._loader(part)})
            layer.register_parameter(part, parameter)

    def process_weights_after_loading(self, layer: torch.nn.Module) -> None:
        """Hand the shards to the witness, the groups of a batched product one by one."""
        matrices = [loading.finish() for loading in self.loading]
        self.loading = []
        witness = dispatch.prepare()
        if getattr(layer, "is_bmm", False):
            groups = enumerate(columns(matrices[0], layer.bmm_batch_size, self.prefix))
            self.groups = [witness.register_linear(f"{self.prefix}.{number}", [part]) for number, part in groups]
            modules = self.groups
        else:
            self.module = witness.register_linear(self.prefix, matrices)
            modules = [self.module]
        for module in modules:
            dispatch.check_linear_ready(module)

    def apply(self, layer: torch.nn.Module, x: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        if self.together is not None:
            out = self.together.apply(self.module, x)
        else:
            out = operators.linear(x.reshape(-1, x.shape[-1]), self.module.index, sum(self.module.widths))
        if bias is not None:
            out = out + bias
        return out.reshape(*x.shape[:-1], out.shape[-1])

    def apply_groups(self, x: torch.Tensor) -> torch.Tensor:
        """``x`` [rows, groups, in] through a matrix of its own for each group: [rows, groups, out]."""
        parts = [
            operators.linear(x[:, place].contiguous(), module.index, sum(module.widths))
            for place, module in enumerate(self.groups)
        ]
        return torch.stack(parts, dim=1)

    def _cut(self, layer: torch.nn.Module, place: int) -> Cut:
        rank, ranks = effective_parallel(layer)
        if isinstance(layer, RowParallelLinear):
            return Cut(rank, ranks, "in")
        if isinstance(layer, QKVParallelLinear) and place > 0:
            # Fewer key-value heads than ranks: several ranks hold the same heads.
            return Cut(rank // layer.num_kv_head_replicas, ranks // layer.num_kv_head_replicas, "out")
        return Cut(rank, ranks, "out")

    def _loader(self, part: str) -> Callable[..., None]:
        def load(parameter: torch.nn.Parameter, tensor: torch.Tensor, shard: int | str | None = None) -> None:
            place = {"q": 0, "k": 1, "v": 2}.get(shard, 0) if isinstance(shard, str) else shard or 0
            self.loading[place].take(part, tensor)

        return load


def effective_parallel(layer: torch.nn.Module) -> tuple[int, int]:
    """(rank, ranks) over which a linear is really cut.

    A replicated linear says the group's size of itself and is whole on every rank (campaign FL-41, order T6).
    """
    if isinstance(layer, ReplicatedLinear):
        return 0, 1
    return int(layer.tp_rank), int(layer.tp_size)
