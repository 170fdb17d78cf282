"""Which variant runs: the requested one through the witness, the incumbent where it declines and strict allows.

Strict 0 falls back and counts; 1 also refuses to load with a variant that is not ready; 2 also refuses a decline whose
typed reason is not allowed: the request fails and the engine ends with the reason.
"""

from __future__ import annotations

import json
import os

import torch
from vllm.distributed import get_tensor_model_parallel_rank, get_tensor_model_parallel_world_size
from vllm.logger import init_logger

from serve.plugin.processes import pin_forked_rank
from serve.witness import abi
from serve.witness import witness as witnesses
from serve.witness.modules import ExpertsModule
from serve.witness.witness import RefusedError, Witness

logger = init_logger("vllm.carve")  # outside the vllm hierarchy INFO lines are dropped

READY_PROBE_ROWS = 1


def prepare() -> Witness:
    """The process's witness, created when the first quantised module loads: by then the rank is known."""
    if witnesses.installed():
        return witnesses.current()
    rank, ranks = get_tensor_model_parallel_rank(), get_tensor_model_parallel_world_size()
    os.environ["CARVE_RANK"] = str(rank)
    pin_forked_rank(rank, ranks)
    witness = witnesses.install(Witness(os.environ, rank=rank, ranks=ranks, threads=torch.get_num_threads()))
    logger.info(
        "carve: plugin ready on rank %d (of %d; variant %s, strict %d, libraries %s, threads %d)",
        rank,
        ranks,
        witness.variant,
        strict(),
        ",".join(sorted(witness.libraries)),
        torch.get_num_threads(),
    )
    if strict() >= 1:
        for name, fault in witness.faults.items():
            raise RefusedError(strict(), f"variant {name} is not ready on rank {rank}: {fault}")
        if witness.variant not in witness.libraries:
            raise RefusedError(strict(), f"variant {witness.variant} is not ready on rank {rank}: no such library")
    return witness


def strict() -> int:
    """``CARVE_STRICT``: 0, 1 or 2."""
    return int(os.environ.get("CARVE_STRICT", "0"))


def allowed_declines() -> frozenset[str]:
    """``CARVE_ALLOWED_DECLINES``: typed reasons that strict 2 lets through."""
    return frozenset(json.loads(os.environ.get("CARVE_ALLOWED_DECLINES", "[]")))


def check_ready(module: ExpertsModule) -> None:
    """Under strict 1 and 2, one probe row through every loaded variant; not-ready refuses the start."""
    if strict() == 0:
        return
    witness = witnesses.current()
    x = torch.zeros((READY_PROBE_ROWS, module.hidden), dtype=torch.float32)
    ids = torch.arange(module.call.topk, dtype=torch.int32).reshape(1, -1)
    weights = torch.full(ids.shape, 1.0 / module.call.topk)
    for variant in sorted(witness.libraries):
        _, reason = witness.run_experts(variant, module, x, ids, weights)
        if reason == "not-ready":
            raise RefusedError(
                strict(), f"variant {variant} is not ready on rank {witness.rank}, layer {module.prefix}"
            )


def routed_experts(x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, layer: int) -> torch.Tensor:
    """Routed experts of the layer with this index, for ``x`` [rows, hidden], ``ids`` and ``weights`` [rows, topk]."""
    witness = witnesses.current()
    module = witness.experts[layer]
    x32 = x.contiguous().to(torch.float32)
    ids32 = ids.contiguous().to(torch.int32)
    weights32 = weights.contiguous().to(torch.float32)
    out, reason = witness.run_experts(witness.variant, module, x32, ids32, weights32)
    if out is None:
        if strict() == 2 and reason not in allowed_declines():
            where = f"rank {witness.rank}, layer {module.prefix}, rows {x.shape[0]}"
            raise RefusedError(2, f"variant {witness.variant} declined on {where}: {reason}")
        out, reason = witness.run_experts(abi.INCUMBENT, module, x32, ids32, weights32)
        if out is None:
            raise RuntimeError(f"the incumbent declined {x.shape[0]} rows at {module.prefix}: {reason}")
    return out.to(x.dtype)


def linear(x: torch.Tensor, layer: int) -> torch.Tensor:
    """The linear module with this index, for ``x`` [rows, in]; always the incumbent's."""
    witness = witnesses.current()
    return witness.run_linear(witness.linears[layer], x.contiguous().to(torch.float32)).to(x.dtype)
