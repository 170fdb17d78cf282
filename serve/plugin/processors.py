"""Which processor this process computes on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from vllm.platforms import current_platform

from serve.witness.processor import Processor

LIBRARY = "CARVE_WITNESS_LIBRARY"


def processor(environment: Mapping[str, str], *, strict: int) -> Processor:
    """The GPU that vLLM gave this rank, or the processor's cores."""
    library = Path(environment[LIBRARY])
    if current_platform.is_cuda():
        from serve.witness.cuda import CudaProcessor  # noqa: PLC0415 (needs a build of torch with CUDA)

        return CudaProcessor(library, torch.device("cuda", torch.cuda.current_device()), strict=strict)
    from serve.witness.cpu import CpuProcessor  # noqa: PLC0415 (the other one)

    return CpuProcessor(library, threads=torch.get_num_threads())
