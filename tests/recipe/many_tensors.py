"""Packs of very many very small tensors: what their work takes of memory is what the tensors' descriptions take."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from carve_kernels.exl3.codebook import Codebook
from carve_kernels.exl3.pack_format import MARKERS, PARTS

from recipe import pack_write
from recipe.configured import anew
from recipe.headers import read_header
from recipe.mini import byte_tokenizer
from recipe.pack import read_pack

SIDE, BITS = 128, 1
PROJECTIONS = ("gate_proj", "up_proj", "down_proj")
TENSORS_AN_EXPERT = len(PROJECTIONS) * 4


def many_tensors(folder: Path, *, layers: int, experts: int, seed: int) -> Path:
    """A pack with one file a layer, and a ``quantization_config.json`` in exllamav3's form, which lists every tensor.

    43 layers of 256 experts have as many tensors as the experts of DeepSeek-V4 (campaign section 1.2): 132,096.
    """
    folder.mkdir()
    random = np.random.default_rng(seed)
    for layer in range(layers):
        tensors = dict(_layer(random, f"model.layers.{layer}.mlp.experts", experts))
        pack_write.write_shard(folder / pack_write.shard_name(layer + 1, layers), tensors)
    headers = [read_header(file) for file in sorted(folder.glob("*.safetensors"))]
    pack_write.write_index(folder, headers)
    byte_tokenizer.write(folder, 512, 4096)
    tensors_now = {entry.name: entry for header in headers for entry in header.entries}
    block = pack_write.quantization_config((name, entry.shape) for name, entry in tensors_now.items())
    config = {"architectures": ["X"], "model_type": "x", "hidden_size": SIDE, "num_hidden_layers": layers}
    config |= {"moe_intermediate_size": SIDE, "n_routed_experts": experts, "vocab_size": 512}
    pack_write.write_json(folder / "config.json", config | {"quantization_config": block})
    storage = {name: {**told, "stored_tensors": {}} for name, told in block["tensor_storage"].items()}
    pack_write.write_json(folder / "quantization_config.json", anew(block | {"tensor_storage": storage}, tensors_now))
    return read_pack(folder).folder


def _layer(
    random: np.random.Generator, prefix: str, experts: int
) -> Iterator[tuple[str, np.ndarray[tuple[int, ...], np.dtype[np.generic]]]]:
    marker = np.array([MARKERS[Codebook.MCG]], np.int32)
    trellis, suh, svh, mcg = (part for part in PARTS if part != Codebook.MUL1.value)
    for expert in range(experts):
        for projection in PROJECTIONS:
            module = f"{prefix}.{expert}.{projection}"
            yield (
                f"{module}.{trellis}",
                random.integers(-(1 << 15), 1 << 15, (SIDE // 16, SIDE // 16, 16 * BITS), np.int16),
            )
            yield f"{module}.{suh}", np.ones(SIDE, np.float16)
            yield f"{module}.{svh}", random.random(SIDE).astype(np.float16) + np.float16(1)
            yield f"{module}.{mcg}", marker
