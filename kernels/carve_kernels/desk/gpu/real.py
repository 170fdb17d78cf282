"""Experts that training made: a layer of the small pack, which travels with a desk's job."""

from __future__ import annotations

import numpy as np
import torch

from carve_kernels.desk.gpu.moe import PROJECTIONS, Layer, Projection
from carve_kernels.desk.gpu.recorded import EXPERTS
from carve_kernels.exl3.codebook import Codebook
from recipe.headers import read_header
from runner.paths import source_root

FILE = "recipe/mini/pack/model-00004-of-00006.safetensors"
"""Layer 2, K 2."""
LAYER = "model.layers.2.mlp.experts"


def real_layer(device: torch.device) -> tuple[Layer, Codebook]:
    """All experts of the layer on the device, and their codebook. PackError where the file is missing or broken."""
    entries = {entry.name: entry for entry in read_header(source_root() / FILE).entries}

    def whole(part: str, tensor: str, kind: type[np.generic]) -> torch.Tensor:
        names = [f"{LAYER}.{expert}.{part}_proj.{tensor}" for expert in range(EXPERTS)]
        return torch.from_numpy(np.stack([entries[name].read().view(kind) for name in names])).to(device)

    parts = [
        Projection(whole(part, "trellis", np.int16), whole(part, "suh", np.float16), whole(part, "svh", np.float16))
        for part in PROJECTIONS
    ]
    return Layer(parts, Codebook.MCG.abi), Codebook.MCG
