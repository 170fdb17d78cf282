"""Which variant runs: the requested one through the witness, the incumbent where it declines and strict allows.

Strict 0 falls back and counts; 1 also refuses to load with a variant that is not ready; 2 also refuses a decline whose
typed reason is not allowed: the request fails and the engine ends with the reason.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable

import torch
from vllm.distributed import get_tensor_model_parallel_rank, get_tensor_model_parallel_world_size
from vllm.logger import init_logger

from serve.plugin.processes import pin_forked_rank
from serve.plugin.processors import processor
from serve.witness import witness as witnesses
from serve.witness.processor import INCUMBENT, Answer, Experts, Linear
from serve.witness.refused import RefusedError
from serve.witness.witness import Witness

logger = init_logger("vllm.carve")  # outside the vllm hierarchy INFO lines are dropped

READY_PROBE_ROWS = 1


def prepare() -> Witness:
    """The process's witness, created when the first quantised module loads: by then the rank is known."""
    if witnesses.installed():
        return witnesses.current()
    rank, ranks = get_tensor_model_parallel_rank(), get_tensor_model_parallel_world_size()
    os.environ["CARVE_RANK"] = str(rank)
    pin_forked_rank(rank, ranks)
    chosen = processor(os.environ, strict=strict())
    witness = witnesses.install(Witness(os.environ, chosen, rank=rank, ranks=ranks))
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


def check_ready(module: Experts) -> None:
    """Under strict 1 and 2, one probe row through every loaded variant; not-ready refuses the start."""
    if strict() == 0:
        return
    witness = witnesses.current()
    device = witness.processor.device
    x = torch.zeros((READY_PROBE_ROWS, module.hidden), dtype=torch.float32, device=device)
    ids = torch.arange(module.topk, dtype=torch.int32, device=device).reshape(1, -1)
    weights = torch.full(ids.shape, 1.0 / module.topk, device=device)
    for variant in sorted(witness.libraries):
        _, reason = witness.run_experts(variant, module, x, ids, weights)
        if reason == "not-ready":
            raise RefusedError(
                strict(), f"variant {variant} is not ready on rank {witness.rank}, layer {module.prefix}"
            )


def check_linear_ready(module: Linear) -> None:
    """Under strict 1 and 2, one probe row through every loaded variant with linears of its own, as for experts."""
    if strict() == 0:
        return
    witness = witnesses.current()
    own = [name for name in sorted(witness.libraries) if name != INCUMBENT and witness.processor.serves(name, "linear")]
    for variant in own:
        x = torch.zeros((READY_PROBE_ROWS, module.inputs), dtype=torch.half, device=witness.processor.device)
        _, reason = witness.run_linear(variant, module, x)
        if reason == "not-ready":
            raise RefusedError(
                strict(), f"variant {variant} is not ready on rank {witness.rank}, module {module.prefix}"
            )


def routed_experts(x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, layer: int) -> torch.Tensor:
    """Routed experts of the layer with this index, for ``x`` [rows, hidden], ``ids`` and ``weights`` [rows, topk]."""
    witness = witnesses.current()
    module = witness.experts[layer]
    return _run(lambda variant: witness.run_experts(variant, module, x, ids, weights), module.prefix, x.shape[0])


def linear(x: torch.Tensor, layer: int) -> torch.Tensor:
    """The linear module with this index, for ``x`` [rows, in]."""
    witness = witnesses.current()
    module = witness.linears[layer]
    return _run(lambda variant: witness.run_linear(variant, module, x), module.prefix, x.shape[0])


def _run(call: Callable[[str], Answer], prefix: str, rows: int) -> torch.Tensor:
    """The variant that is switched on, or the incumbent where it declines and strict lets it."""
    witness = witnesses.current()
    out, reason = call(witness.variant)
    if out is not None:
        return out
    if strict() == 2 and reason not in allowed_declines():
        where = f"rank {witness.rank}, layer {prefix}, rows {rows}"
        raise RefusedError(2, f"variant {witness.variant} declined on {where}: {reason}")
    out, reason = call(INCUMBENT)
    if out is None:
        raise RuntimeError(f"the incumbent declined {rows} rows at {prefix}: {reason}")
    return out
