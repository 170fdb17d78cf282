"""Run inside an interpreter whose first path is the shadow: what the patched functions of vLLM do. Prints JSON."""

from __future__ import annotations

import json
import os
from types import SimpleNamespace
from typing import Any

import torch
from vllm.model_executor.layers.fused_moe.runner.shared_experts import SharedExperts
from vllm.models.deepseek_v4 import attention, compressor
from vllm.models.deepseek_v4.nvidia import model
from vllm.models.deepseek_v4.nvidia.ops import o_proj
from vllm.v1.worker import gpu_worker

EXL3 = SimpleNamespace(get_name=lambda: "exl3")
FP8 = SimpleNamespace(get_name=lambda: "fp8")


class Coded(torch.nn.Module):
    """A linear as the plugin leaves it: a trellis, no dense weight."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.trellis = torch.nn.Parameter(torch.empty(0), requires_grad=False)
        self.input_size_per_partition = inputs
        self.quant_config = EXL3
        self.matrix = torch.randn(inputs, outputs)
        self.calls: list[int] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls.append(len(x))
        return x.float() @ self.matrix


def refusal(call: Any, *arguments: Any) -> str:
    """The error's first words."""
    try:
        call(*arguments)
    except (RuntimeError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    return "none"


def output_projection() -> float:
    """Largest difference from turning each pair by minus its angle and multiplying, relative to the result."""
    rows, heads, size, rope, rank, hidden = 5, 8, 96, 32, 48, 64
    torch.manual_seed(0)
    angles = torch.randn(20, rope // 2)
    positions = torch.tensor([3, 0, 19, 7, 7])
    o = torch.randn(rows, heads, size)
    wo_a, wo_b = Coded(heads * size, rank), Coded(rank, hidden)
    found = o_proj.carve_exl3_o_proj(o, positions, torch.cat((angles.cos(), angles.sin()), dim=-1), wo_a, wo_b, 1, rope)
    pairs = torch.view_as_complex(o[..., -rope:].reshape(rows, heads, rope // 2, 2))
    turned = torch.view_as_real(pairs * torch.exp(-1j * angles[positions])[:, None]).flatten(-2)
    expected = torch.cat((o[..., :-rope], turned), dim=-1).flatten(1) @ wo_a.matrix @ wo_b.matrix
    return float((found - expected).abs().max() / expected.abs().max())


def prewarmed() -> dict[str, Any]:
    """Which rows each linear saw, and what is refused."""
    layers = torch.nn.ModuleDict({"a": Coded(16, 8), "b": Coded(32, 8), "plain": torch.nn.Linear(4, 4)})
    covered = gpu_worker.carve_prewarm_exl3(layers, [1, 2, 4, 12, 512], torch.float32)
    os.environ["CARVE_EXL3_PREWARM_ROWS"] = "1,2"
    refused = refusal(gpu_worker.carve_prewarm_exl3, layers, [1, 2, 4], torch.float32)
    plain = gpu_worker.carve_prewarm_exl3(torch.nn.ModuleDict({"plain": torch.nn.Linear(4, 4)}), [4], torch.float32)
    return {"covered": covered, "calls": layers["a"].calls[:5], "refused": refused, "plain": plain}


def second_stream(quant: Any, stream: object) -> str:
    """What the refusal says about shared experts with this quantisation on this stream."""
    holder = SimpleNamespace(_layer=torch.nn.Sequential(Coded(4, 4)), _stream=stream)
    holder._layer[0].quant_config = quant
    return refusal(SharedExperts.carve_refuse_shared_locks, holder)


def aux_streams(value: str, quant: Any) -> str:
    """What the model gets, or the refusal."""
    os.environ["CARVE_DSV4_AUX_STREAMS"] = value
    return refusal(model.carve_aux_streams, quant)


scores = attention.carve_scores(Coded(16, 8), torch.ones(3, 16, dtype=torch.bfloat16))
print(
    json.dumps(
        {
            "output_projection": output_projection(),
            "groups": refusal(o_proj.carve_exl3_o_proj, None, None, None, None, None, 2, 8),
            "prewarmed": prewarmed(),
            "second stream": [second_stream(EXL3, object()), second_stream(EXL3, None), second_stream(FP8, object())],
            "aux streams": [aux_streams("0", EXL3), aux_streams("1", EXL3), aux_streams("off", FP8)],
            "compressor": [compressor.carve_exl3_only(quant) is quant for quant in (EXL3, None)]
            + [compressor.carve_exl3_only(FP8) is None],
            "scores": [str(scores.dtype), list(scores.shape)],
            "packed": model.DeepseekV4ForCausalLM.packed_modules_mapping["fused_wkv_wgate"],
        }
    )
)
