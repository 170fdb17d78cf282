"""A small EXL3 pack of random bits, made in a second: everything of a real pack but a trained model.

For tests of loading, dispatch, sharding and speed. Its text is noise; quality gates need the trained pack.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from carve_kernels.exl3 import codebook, pack_format
from carve_kernels.exl3.codebook import Codebook
from carve_kernels.exl3.linear import Linear
from numpy.typing import NDArray

from recipe import pack_write, whole_folder
from recipe.closure import weight_files
from recipe.disk import command
from recipe.headers import read_header
from recipe.mini import byte_tokenizer
from recipe.mini.glm import ExpertBits, coded_modules, layer_of

Arrays = dict[str, NDArray[Any]]


CONFIGURATION: dict[str, Any] = {
    "architectures": ["Glm4MoeForCausalLM"],
    "model_type": "glm4_moe",
    "dtype": "float16",
    "attention_bias": False,
    "bos_token_id": None,
    "eos_token_id": 0,
    "first_k_dense_replace": 1,
    "head_dim": 64,
    "hidden_act": "silu",
    "max_position_embeddings": 4096,
    "n_group": 1,
    "n_shared_experts": 1,
    "norm_topk_prob": True,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "pad_token_id": 0,
    "partial_rotary_factor": 0.5,
    "rms_norm_eps": 1e-5,
    "rope_parameters": {"rope_type": "default", "rope_theta": 50_000.0, "partial_rotary_factor": 0.5},
    "routed_scaling_factor": 1.5,
    "tie_word_embeddings": False,
    "topk_group": 1,
    "use_qk_norm": True,
}
"""What all packs of this module share of a ``config.json``."""


def generate(
    folder: Path,
    seed: int = 0,
    layers: int = 2,
    *,
    draft_layers: int = 0,
    hidden: int = 256,
    intermediate: int = 512,
    experts: int = 8,
    topk: int = 4,
    vocabulary: int = 2048,
    expert_bits: ExpertBits = ((2, 3), (3, 2)),
    mlp_bits: int = 4,
    book: Codebook = Codebook.MCG,
) -> Path:
    """Make a Glm4Moe pack in ``folder`` (StateError where it exists) and return the folder.

    The first layer is dense, the others have routed experts and one shared expert. The same arguments give the same
    bytes. Activations keep about unit size: a coded matrix has standard deviation ``1 / sqrt(in)``.
    """
    config = CONFIGURATION | {
        "hidden_size": hidden,
        "intermediate_size": intermediate,
        "moe_intermediate_size": intermediate,
        "n_routed_experts": experts,
        "num_experts_per_tok": topk,
        "num_hidden_layers": layers,
        "num_nextn_predict_layers": draft_layers,
        "vocab_size": vocabulary,
    }
    rng = np.random.default_rng(seed)
    by_layer: dict[int | None, Arrays] = {}
    for name, array in _tensors(config, coded_modules(config, expert_bits, mlp_bits), rng, book):
        by_layer.setdefault(layer_of(name), {})[name] = array

    with whole_folder.anew(folder) as partial:
        for number, tensors in enumerate(by_layer.values(), start=1):
            pack_write.write_shard(partial / pack_write.shard_name(number, len(by_layer)), tensors)
        pack_write.write_index(partial, [read_header(file) for file in weight_files(partial)])
        shapes = ((name, array.shape) for tensors in by_layer.values() for name, array in tensors.items())
        config["quantization_config"] = pack_write.quantization_config(shapes)
        pack_write.write_json(partial / "config.json", config)
        byte_tokenizer.write(partial, vocabulary, config["max_position_embeddings"])
    return folder


def _tensors(
    config: dict[str, Any], coded: dict[str, int], rng: np.random.Generator, book: Codebook
) -> Iterator[tuple[str, NDArray[Any]]]:
    hidden, size = config["hidden_size"], config["head_dim"]
    queries, keys = config["num_attention_heads"] * size, config["num_key_value_heads"] * size
    ones = np.ones(hidden, dtype=np.float16)

    def matrix(out: int, inputs: int) -> NDArray[np.float16]:
        values: NDArray[np.float16] = (rng.standard_normal((out, inputs)) / np.sqrt(inputs)).astype(np.float16)
        return values

    yield "model.embed_tokens.weight", rng.standard_normal((config["vocab_size"], hidden)).astype(np.float16)
    for layer in range(config["num_hidden_layers"] + config["num_nextn_predict_layers"]):
        prefix = f"model.layers.{layer}"
        if layer >= config["num_hidden_layers"]:
            yield from ((f"{prefix}.{norm}.weight", ones) for norm in ("enorm", "hnorm", "shared_head.norm"))
            yield f"{prefix}.eh_proj.weight", matrix(hidden, 2 * hidden)
        yield from ((f"{prefix}.{norm}.weight", ones) for norm in ("input_layernorm", "post_attention_layernorm"))
        for name, out, inputs in (
            ("q_proj", queries, hidden),
            ("k_proj", keys, hidden),
            ("v_proj", keys, hidden),
            ("o_proj", hidden, queries),
        ):
            yield f"{prefix}.self_attn.{name}.weight", matrix(out, inputs)
        for name in ("q_norm", "k_norm"):
            yield f"{prefix}.self_attn.{name}.weight", ones[:size]
        if layer >= config["first_k_dense_replace"]:
            experts = config["n_routed_experts"]
            yield f"{prefix}.mlp.gate.weight", matrix(experts, hidden).astype(np.float32)
            correction = (0.05 * rng.standard_normal(experts)).astype(np.float32)
            yield f"{prefix}.mlp.gate.e_score_correction_bias", correction
        for module, bits in coded.items():
            if layer_of(module) == layer:
                width = config["intermediate_size"]
                shape = (width, hidden) if module.endswith("down_proj") else (hidden, width)
                yield from pack_format.to_tensors(module, _linear(*shape, bits, book, rng)).items()
    yield "model.norm.weight", ones
    yield "lm_head.weight", matrix(config["vocab_size"], hidden)


def _linear(inputs: int, outputs: int, bits: int, book: Codebook, rng: np.random.Generator) -> Linear:
    scale = 1 / (float(codebook.table(book).astype(np.float64).std()) * np.sqrt(inputs))
    suh = rng.choice([-scale, scale], inputs) * rng.uniform(0.8, 1.2, inputs)
    svh = rng.choice([-1.0, 1.0], outputs) * rng.uniform(0.8, 1.2, outputs)
    trellis = rng.integers(0, 1 << 16, (inputs // 16, outputs // 16, 16 * bits), dtype=np.uint16)
    return Linear(trellis, suh.astype(np.float16), svh.astype(np.float16), book)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--draft-layers", type=int, default=0)
    arguments = parser.parse_args()
    print(generate(arguments.folder, arguments.seed, arguments.layers, draft_layers=arguments.draft_layers))


if __name__ == "__main__":
    sys.exit(command(main))
