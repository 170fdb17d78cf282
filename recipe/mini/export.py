"""Write a trained ``MiniModel`` as a Hugging Face checkpoint, expert by expert, the draft layer at its own index."""

import json
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from recipe.mini.model import Attention, Block, Dense, Experts, MiniModel, Shape

_PROJECTIONS = ("gate_proj", "up_proj", "down_proj")
_FLOAT32 = ("mlp.gate.weight", "mlp.gate.e_score_correction_bias")


def _attention(prefix: str, attention: Attention) -> Iterator[tuple[str, Tensor]]:
    for name in ("q_proj", "k_proj", "v_proj", "o_proj", "q_norm", "k_norm"):
        yield f"{prefix}.{name}.weight", getattr(attention, name).weight


def _experts(prefix: str, experts: Experts) -> Iterator[tuple[str, Tensor]]:
    yield f"{prefix}.gate.weight", experts.router
    yield f"{prefix}.gate.e_score_correction_bias", experts.correction
    last = experts.gate_proj.shape[0] - 1
    for name in _PROJECTIONS:
        stacked = getattr(experts, name)
        for index in range(last):
            yield f"{prefix}.experts.{index}.{name}.weight", stacked[index]
        yield f"{prefix}.shared_experts.{name}.weight", stacked[last]


def _block(prefix: str, block: Block) -> Iterator[tuple[str, Tensor]]:
    yield f"{prefix}.input_layernorm.weight", block.input_layernorm.weight
    yield f"{prefix}.post_attention_layernorm.weight", block.post_attention_layernorm.weight
    yield from _attention(f"{prefix}.self_attn", block.self_attn)
    if isinstance(block.mlp, Experts):
        yield from _experts(f"{prefix}.mlp", block.mlp)
    elif isinstance(block.mlp, Dense):
        for name in _PROJECTIONS:
            yield f"{prefix}.mlp.{name}.weight", getattr(block.mlp, name).weight


def named_tensors(model: MiniModel) -> Iterator[tuple[str, Tensor]]:
    """Checkpoint names and tensors. The draft's embedding and head are the model's own and not written twice:
    vLLM shares them with a draft layer of this architecture."""
    yield "model.embed_tokens.weight", model.embed_tokens.weight
    for index, layer in enumerate(model.layers):
        assert isinstance(layer, Block)
        yield from _block(f"model.layers.{index}", layer)
    prefix = f"model.layers.{len(model.layers)}"
    draft = model.draft
    yield f"{prefix}.enorm.weight", draft.enorm.weight
    yield f"{prefix}.hnorm.weight", draft.hnorm.weight
    yield f"{prefix}.eh_proj.weight", draft.eh_proj.weight
    yield from _block(prefix, draft.block)
    yield f"{prefix}.shared_head.norm.weight", draft.norm.weight
    yield "model.norm.weight", model.norm.weight
    yield "lm_head.weight", model.lm_head.weight


def export(model: MiniModel, folder: Path, dtype: torch.dtype = torch.float16) -> None:
    """Write ``config.json`` and ``model.safetensors``; the router stays float32.

    Raises ``ValueError`` for a value that ``dtype`` cannot hold.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {}
    for name, tensor in named_tensors(model):
        kept = torch.float32 if name.endswith(_FLOAT32) else dtype
        tensors[name] = tensor.detach().to("cpu", kept).contiguous()
        if not torch.isfinite(tensors[name]).all():
            raise ValueError(f"{name} does not fit into {kept}")
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = model.shape.config(str(dtype).removeprefix("torch."))
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")


def restore(folder: Path, *, draft: bool = True) -> MiniModel:
    """The inverse of ``export``: a float32 model on the CPU from a checkpoint (or a dequantised pack).

    Without ``draft`` the draft layer stays as it was made and may be missing: other tools leave it out, and no logits
    come from it. Raises ``KeyError`` for a missing tensor, ``ValueError`` for tensors that do not belong to this shape.
    """
    config = json.loads((folder / "config.json").read_text())
    given = config | config["rope_parameters"]
    shape = Shape(**{field.name: given[field.name] for field in fields(Shape)})
    loaded: dict[str, Tensor] = {}
    for file in sorted(folder.glob("*.safetensors")):
        loaded |= load_file(file)
    model = MiniModel(shape)
    drafted = f"model.layers.{len(model.layers)}."
    with torch.no_grad():
        for name, tensor in named_tensors(model):
            if draft or not name.startswith(drafted):
                tensor.copy_(loaded.pop(name))
            else:
                loaded.pop(name, None)
    if loaded:
        raise ValueError(f"{folder} has tensors that the model does not: {sorted(loaded)[:3]}")
    model.eval()
    return model
