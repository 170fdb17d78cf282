"""The small model's training module: the mathematics of transformers' ``Glm4MoeForCausalLM`` plus its draft layer.

Every routed expert is computed for every token and weighted (by zero where not chosen): two large matrix products per
layer, which on a GPU is faster than gathering at this size. The draft (MTP) layer follows DeepSeek-V3 (arXiv
2412.19437, section 2.2) as vLLM serves it: it joins the final hidden state of position i with the embedding of token
i + 1 (zero at position 0) and predicts token i + 2.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class Shape:
    """Sizes under the names of a Hugging Face ``glm4_moe`` configuration."""

    vocab_size: int = 1536
    hidden_size: int = 256
    num_hidden_layers: int = 4
    first_k_dense_replace: int = 1
    num_nextn_predict_layers: int = 1
    num_attention_heads: int = 4
    num_key_value_heads: int = 2
    head_dim: int = 64
    intermediate_size: int = 512
    moe_intermediate_size: int = 512
    n_routed_experts: int = 6
    n_shared_experts: int = 1
    num_experts_per_tok: int = 3
    routed_scaling_factor: float = 1.8
    rms_norm_eps: float = 1e-5
    rope_theta: float = 50_000.0
    partial_rotary_factor: float = 0.5
    max_position_embeddings: int = 4096

    def config(self, dtype: str = "float16") -> dict[str, Any]:
        """The ``config.json`` of the checkpoint."""
        fields = asdict(self)
        rope = {"rope_type": "default", "rope_theta": fields.pop("rope_theta")}
        rope["partial_rotary_factor"] = fields.pop("partial_rotary_factor")
        return fields | {
            "architectures": ["Glm4MoeForCausalLM"],
            "model_type": "glm4_moe",
            "dtype": dtype,
            "hidden_act": "silu",
            "attention_bias": False,
            "attention_dropout": 0.0,
            "use_qk_norm": True,
            "norm_topk_prob": True,
            "n_group": 1,
            "topk_group": 1,
            "tie_word_embeddings": False,
            "rope_parameters": rope,
            "partial_rotary_factor": rope["partial_rotary_factor"],
            "initializer_range": 0.02,
            "bos_token_id": None,
            "eos_token_id": 0,
            "pad_token_id": 0,
            "use_cache": True,
        }


class Norm(nn.Module):
    """Root-mean-square norm over the last axis, computed in float32."""

    def __init__(self, size: int, epsilon: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.epsilon = epsilon

    def forward(self, values: Tensor) -> Tensor:
        return functional.rms_norm(values.float(), self.weight.shape, self.weight, self.epsilon)


def _rotate(values: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Rotate the first ``2 * cosine.shape[-1]`` channels of [batch, heads, length, channels] in halves."""
    half = cosine.shape[-1]
    first, second, rest = values[..., :half], values[..., half : 2 * half], values[..., 2 * half :]
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine, rest), dim=-1)


class Attention(nn.Module):
    """Grouped-query attention with normalised queries and keys and partial rotary positions."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.size = shape.num_attention_heads, shape.num_key_value_heads, shape.head_dim
        self.q_proj = nn.Linear(shape.hidden_size, self.heads * self.size, bias=False)
        self.k_proj = nn.Linear(shape.hidden_size, self.kv_heads * self.size, bias=False)
        self.v_proj = nn.Linear(shape.hidden_size, self.kv_heads * self.size, bias=False)
        self.o_proj = nn.Linear(self.heads * self.size, shape.hidden_size, bias=False)
        self.q_norm = Norm(self.size, shape.rms_norm_eps)
        self.k_norm = Norm(self.size, shape.rms_norm_eps)

    def forward(self, hidden: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        batch, length, _ = hidden.shape
        query = self.q_norm(self.q_proj(hidden).view(batch, length, self.heads, self.size)).transpose(1, 2)
        key = self.k_norm(self.k_proj(hidden).view(batch, length, self.kv_heads, self.size)).transpose(1, 2)
        value = self.v_proj(hidden).view(batch, length, self.kv_heads, self.size).transpose(1, 2)
        query = _rotate(query, cosine, sine).to(value.dtype)
        key = _rotate(key, cosine, sine).to(value.dtype)
        groups = self.heads // self.kv_heads
        key, value = key.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.o_proj(mixed.transpose(1, 2).reshape(batch, length, -1))


class Dense(nn.Module):
    """Gated feed-forward block."""

    def __init__(self, hidden: int, width: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(hidden, width, bias=False)
        self.up_proj = nn.Linear(hidden, width, bias=False)
        self.down_proj = nn.Linear(width, hidden, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        return self.down_proj(functional.silu(self.gate_proj(hidden)) * self.up_proj(hidden))


class Experts(nn.Module):
    """Routed experts and the shared one (stored last, weight 1), all computed for every token.

    ``gate_proj`` and ``up_proj`` are [experts + 1, width, hidden], ``down_proj`` is [experts + 1, hidden, width].
    ``load`` counts the tokens each routed expert was chosen for since it was last cleared. ``chooser``, where there is
    one, chooses in place of the highest scores: corrected scores [tokens, experts] to expert numbers [tokens, top].
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        count, width, hidden = shape.n_routed_experts, shape.moe_intermediate_size, shape.hidden_size
        if shape.n_shared_experts != 1:
            raise ValueError("the training module holds exactly one shared expert")
        self.top, self.scale = shape.num_experts_per_tok, shape.routed_scaling_factor
        self.router = nn.Parameter(torch.zeros(count, hidden))
        self.gate_proj = nn.Parameter(torch.zeros(count + 1, width, hidden))
        self.up_proj = nn.Parameter(torch.zeros(count + 1, width, hidden))
        self.down_proj = nn.Parameter(torch.zeros(count + 1, hidden, width))
        self.correction: Tensor
        self.load: Tensor
        self.register_buffer("correction", torch.zeros(count))
        self.register_buffer("load", torch.zeros(count), persistent=False)
        self.noise = 0.0
        self.chooser: Callable[[Tensor], Tensor] | None = None

    def route(self, hidden: Tensor) -> Tensor:
        """[tokens, hidden] to float32 weights [tokens, experts]: sigmoid scores, the top ones by corrected score."""
        with torch.autocast(hidden.device.type, enabled=False):
            scores = functional.linear(hidden.float(), self.router.float()).sigmoid()
            ranked = scores.detach() + self.correction
            best = self.chooser(ranked) if self.chooser else ranked.topk(self.top, dim=1).indices
            chosen = torch.zeros_like(scores).scatter_(1, best, 1.0)
            if self.training:
                self.load += chosen.sum(0)
            weights = scores * chosen
            return self.scale * weights / (weights.sum(1, keepdim=True) + 1e-20)

    def _disturbed(self, weight: Tensor) -> Tensor:
        """The weight, in training with Gaussian noise of ``noise`` times each matrix's root mean square."""
        if not (self.training and self.noise):
            return weight
        size = weight.detach().float().pow(2).mean(dim=(1, 2), keepdim=True).sqrt()
        return weight + torch.randn_like(weight) * (size * self.noise)

    def forward(self, hidden: Tensor) -> Tensor:
        flat = hidden.reshape(-1, hidden.shape[-1])
        weights = self.route(flat)
        experts, width, size = self.gate_proj.shape
        weights = torch.cat((weights, torch.ones_like(weights[:, :1])), dim=1)
        gate = functional.linear(flat, self._disturbed(self.gate_proj).view(experts * width, size))
        up = functional.linear(flat, self._disturbed(self.up_proj).view(experts * width, size))
        inner = (functional.silu(gate) * up).view(-1, experts, width) * weights.unsqueeze(-1).to(gate.dtype)
        down = self._disturbed(self.down_proj).permute(1, 0, 2).reshape(size, experts * width)
        return functional.linear(inner.view(-1, experts * width), down).view(hidden.shape)


class Block(nn.Module):
    """One decoder layer; ``dropout`` acts on both residual branches in training."""

    def __init__(self, shape: Shape, *, dense: bool, dropout: float) -> None:
        super().__init__()
        self.self_attn = Attention(shape)
        self.mlp: nn.Module = Dense(shape.hidden_size, shape.intermediate_size) if dense else Experts(shape)
        self.input_layernorm = Norm(shape.hidden_size, shape.rms_norm_eps)
        self.post_attention_layernorm = Norm(shape.hidden_size, shape.rms_norm_eps)
        self.dropout = dropout

    def forward(self, hidden: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        mixed = self.self_attn(self.input_layernorm(hidden), cosine, sine)
        hidden = hidden + functional.dropout(mixed, self.dropout, self.training)
        mixed = self.mlp(self.post_attention_layernorm(hidden))
        return hidden + functional.dropout(mixed, self.dropout, self.training)


class Draft(nn.Module):
    """The draft layer around one decoder block with experts."""

    def __init__(self, shape: Shape, dropout: float) -> None:
        super().__init__()
        self.enorm = Norm(shape.hidden_size, shape.rms_norm_eps)
        self.hnorm = Norm(shape.hidden_size, shape.rms_norm_eps)
        self.eh_proj = nn.Linear(2 * shape.hidden_size, shape.hidden_size, bias=False)
        self.block = Block(shape, dense=False, dropout=dropout)
        self.norm = Norm(shape.hidden_size, shape.rms_norm_eps)

    def forward(self, embedded: Tensor, hidden: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        positions = torch.arange(embedded.shape[1], device=embedded.device)
        embedded = torch.where(positions[None, :, None] == 0, 0.0, embedded)
        joined = self.eh_proj(torch.cat((self.enorm(embedded), self.hnorm(hidden)), dim=-1))
        return self.norm(self.block(joined, cosine, sine))


class MiniModel(nn.Module):
    """The whole model. ``forward`` gives final hidden states; heads are applied by the caller where needed."""

    def __init__(self, shape: Shape, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.shape = shape
        self.embed_tokens = nn.Embedding(shape.vocab_size, shape.hidden_size)
        dense = shape.first_k_dense_replace
        self.layers = nn.ModuleList(
            Block(shape, dense=index < dense, dropout=dropout) for index in range(shape.num_hidden_layers)
        )
        self.norm = Norm(shape.hidden_size, shape.rms_norm_eps)
        self.lm_head = nn.Linear(shape.hidden_size, shape.vocab_size, bias=False)
        self.draft = Draft(shape, dropout)
        self._initialise()

    def _initialise(self) -> None:
        last = 0.02 / (2 * (self.shape.num_hidden_layers + 1)) ** 0.5
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=last if "o_proj" in name or "down_proj" in name else 0.02)
        with torch.no_grad():
            self.lm_head.weight.copy_(self.embed_tokens.weight)

    def experts(self) -> list[Experts]:
        """Every expert layer, the draft's last."""
        return [module for module in self.modules() if isinstance(module, Experts)]

    def rotary(self, length: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """Cosines and sines [length, rotary channels / 2]."""
        channels = int(self.shape.head_dim * self.shape.partial_rotary_factor)
        steps = torch.arange(0, channels, 2, device=device, dtype=torch.float32) / channels
        angles = torch.arange(length, device=device, dtype=torch.float32)[:, None] / self.shape.rope_theta**steps
        return angles.cos(), angles.sin()

    def forward(self, tokens: Tensor) -> Tensor:
        """Token ids [batch, length] to final (normalised) hidden states [batch, length, hidden]."""
        cosine, sine = self.rotary(tokens.shape[1], tokens.device)
        hidden = self.embed_tokens(tokens)
        for layer in self.layers:
            hidden = layer(hidden, cosine, sine)
        normalised: Tensor = self.norm(hidden)
        return normalised

    def draft_hidden(self, tokens: Tensor, hidden: Tensor) -> Tensor:
        """Draft states for positions 0 .. length - 2; position i sees token i + 1 and predicts token i + 2."""
        cosine, sine = self.rotary(tokens.shape[1] - 1, tokens.device)
        states: Tensor = self.draft(self.embed_tokens(tokens[:, 1:]), hidden[:, :-1], cosine, sine)
        return states
