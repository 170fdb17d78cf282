"""A pack of random bits with the geometry of a large model's experts, as one rank sees them: for speed, not for text.

It is made where it is served, from a seed, and never carried: DeepSeek-V4's share at tensor parallel 8 (256 experts,
4096 to 256 and back, 2 bits) takes 0.2 GB a layer. The skeleton around it is Glm4Moe's, small. Every number comes from
the raw output of PCG64, which no version of numpy may change, so that the same arguments give the same bytes anywhere.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from carve_kernels.exl3 import codebook, pack_format
from carve_kernels.exl3.codebook import Codebook
from carve_kernels.exl3.linear import Linear
from numpy.typing import NDArray

from recipe import pack_write, whole_folder
from recipe.closure import weight_files
from recipe.headers import Entry, read_header
from recipe.mini import byte_tokenizer
from recipe.mini.glm import coded_modules, layer_of
from recipe.mini.random_pack import CONFIGURATION
from runner.digest import sha256_json
from runner.paths import cache_home

VERSION = 2
"""Of this generator: packs of different versions differ."""
ROUTED_GAIN = 0.25
"""Of the routed experts. Of 256 random ones the last chosen and the next are nearly tied, and rounding decides: at unit
gain two right kernels agreed on 77 % of the likeliest tokens after 16 layers of a simulation, at a quarter on 92 %.
"""
DENSE_BITS, VOCABULARY, HEADS = 6, 2048, 8
_HEAD = 128


class Bits:
    """Random numbers from raw words alone."""

    def __init__(self, seed: int) -> None:
        self._source = np.random.PCG64(seed)

    def words(self, *shape: int) -> NDArray[np.uint16]:
        """Uniform 16-bit words."""
        count = math.prod(shape)
        raw = np.asarray(self._source.random_raw(-(-count // 4)), dtype="<u8")
        return raw.view("<u2")[:count].reshape(shape)

    def uniform(self, deviation: float, *shape: int) -> NDArray[np.float16]:
        """Uniform around 0 with this standard deviation."""
        scale = np.float32(deviation * math.sqrt(3) / (1 << 15))
        return ((self.words(*shape).astype(np.float32) - (1 << 15)) * scale).astype(np.float16)

    def signs(self, scale: float, count: int) -> NDArray[np.float16]:
        """``scale`` with random signs."""
        return np.where(self.words(count) & 1, scale, -scale).astype(np.float16)


class Blank(Bits):
    """Shapes and types without numbers: arrays that take no memory."""

    def __init__(self) -> None:
        super().__init__(0)

    def words(self, *shape: int) -> NDArray[np.uint16]:
        """Zeros."""
        return np.broadcast_to(np.uint16(0), shape)

    def uniform(self, deviation: float, *shape: int) -> NDArray[np.float16]:
        """Zeros."""
        return np.broadcast_to(np.float16(0), shape)


def ensure(*, seed: int, layers: int, hidden: int, intermediate: int, experts: int, topk: int, bits: int) -> Path:
    """The folder of the pack in the cache, made where it is not there yet.

    A folder that another process made meanwhile is as good: the same arguments give the same bytes.
    """
    given = {"seed": seed, "layers": layers, "hidden": hidden, "intermediate": intermediate}
    given |= {"experts": experts, "topk": topk, "bits": bits}
    folder = cache_home() / "packs" / f"experts-{sha256_json({**given, 'version': VERSION})[:16]}"
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        generate(folder, **given)
    return folder


def generate(
    folder: Path, *, seed: int, layers: int, hidden: int, intermediate: int, experts: int, topk: int, bits: int
) -> Path:
    """Make the pack in ``folder``, layer by layer. Raises StateError where the folder exists."""
    config = configuration(layers, hidden, intermediate, experts, topk)
    with whole_folder.anew(folder) as partial:
        for number, made in enumerate(_parts(config, bits, Bits(seed)), 1):
            pack_write.write_shard(partial / pack_write.shard_name(number, layers + 1), dict(made))
        headers = [read_header(file) for file in weight_files(partial)]
        pack_write.write_index(partial, headers)
        shapes = [(entry.name, entry.shape) for header in headers for entry in header.entries]
        config["quantization_config"] = pack_write.quantization_config(shapes)
        pack_write.write_json(partial / "config.json", config)
        byte_tokenizer.write(partial, VOCABULARY, config["max_position_embeddings"])
    return folder


def described(
    *, seed: int, layers: int, hidden: int, intermediate: int, experts: int, topk: int, bits: int
) -> tuple[dict[str, Any], dict[str, Entry]]:
    """Configuration and tensors of the pack that :func:`generate` would make, whatever the seed; nothing is written.

    A tensor's file and place in it are not known: each begins at byte 0 of no file.
    """
    config = configuration(layers, hidden, intermediate, experts, topk)
    tensors = {name: array for made in _parts(config, bits, Blank()) for name, array in made}
    entries: dict[str, Entry] = {}
    for name, array in tensors.items():
        kind = f"{array.dtype.kind.upper()}{8 * array.dtype.itemsize}"
        entries[name] = Entry(name, kind, array.shape or (1,), Path(), 0, array.nbytes)
    return config, entries


def configuration(layers: int, hidden: int, intermediate: int, experts: int, topk: int) -> dict[str, Any]:
    """What the pack's ``config.json`` says, but for its quantisation."""
    return CONFIGURATION | {
        "first_k_dense_replace": 0,
        "head_dim": _HEAD,
        "hidden_size": hidden,
        "intermediate_size": intermediate,
        "moe_intermediate_size": intermediate,
        "n_routed_experts": experts,
        "num_attention_heads": HEADS,
        "num_experts_per_tok": topk,
        "num_hidden_layers": layers,
        "num_nextn_predict_layers": 0,
        "vocab_size": VOCABULARY,
    }


def _parts(config: dict[str, Any], bits: int, source: Bits) -> Iterator[Iterator[tuple[str, NDArray[Any]]]]:
    """Tensors of each file: a layer each, then what stands before and after all layers."""
    coded = coded_modules(config, ((bits, bits),), DENSE_BITS)
    for number in range(config["num_hidden_layers"]):
        yield _layer(number, config, coded, source)
    yield _ends(config, source)


def _layer(
    layer: int, config: dict[str, Any], coded: dict[str, int], source: Bits
) -> Iterator[tuple[str, NDArray[Any]]]:
    hidden, prefix = config["hidden_size"], f"model.layers.{layer}"
    queries, keys = config["num_attention_heads"] * _HEAD, config["num_key_value_heads"] * _HEAD
    ones = np.ones(hidden, dtype=np.float16)
    yield from ((f"{prefix}.{norm}.weight", ones) for norm in ("input_layernorm", "post_attention_layernorm"))
    sides = {
        "q_proj": (queries, hidden),
        "k_proj": (keys, hidden),
        "v_proj": (keys, hidden),
        "o_proj": (hidden, queries),
    }
    for name, (outputs, inputs) in sides.items():
        yield f"{prefix}.self_attn.{name}.weight", source.uniform(inputs**-0.5, outputs, inputs)
    yield from ((f"{prefix}.self_attn.{name}.weight", ones[:_HEAD]) for name in ("q_norm", "k_norm"))
    experts = config["n_routed_experts"]
    yield f"{prefix}.mlp.gate.weight", source.uniform(hidden**-0.5, experts, hidden).astype(np.float32)
    yield f"{prefix}.mlp.gate.e_score_correction_bias", np.zeros(experts, dtype=np.float32)
    for module, bits in coded.items():
        if layer_of(module) == layer:
            width = config["intermediate_size"]
            inputs, outputs = (width, hidden) if module.endswith("down_proj") else (hidden, width)
            gain = ROUTED_GAIN if module.endswith(".down_proj") and ".mlp.experts." in module else 1.0
            yield from pack_format.to_tensors(module, _linear(inputs, outputs, bits, source, gain)).items()


def _ends(config: dict[str, Any], source: Bits) -> Iterator[tuple[str, NDArray[Any]]]:
    hidden = config["hidden_size"]
    yield "model.embed_tokens.weight", source.uniform(1.0, VOCABULARY, hidden)
    yield "model.norm.weight", np.ones(hidden, dtype=np.float16)
    yield "lm_head.weight", source.uniform(hidden**-0.5, VOCABULARY, hidden)


def _linear(inputs: int, outputs: int, bits: int, source: Bits, gain: float) -> Linear:
    """Of about this ``gain``."""
    scale = 1 / (_spread() * math.sqrt(inputs))
    trellis = source.words(inputs // 16, outputs // 16, 16 * bits)
    return Linear(trellis, source.signs(scale, inputs), source.signs(gain, outputs), Codebook.MCG)


@cache
def _spread() -> float:
    """Standard deviation of what the codebook decodes to."""
    return float(codebook.table(Codebook.MCG).astype(np.float64).std())
