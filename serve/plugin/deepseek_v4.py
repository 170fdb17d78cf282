"""DeepSeek-V4's attention over EXL3 matrices: ``wo_a`` group by group on each rank, and input projections as one fan.

vLLM's class multiplies the weight of ``wo_a`` itself, as a batched product over groups of heads, and runs the
projections that read the hidden state on streams of their own. A linear method is asked for neither. So these two steps
of the class are stepped around where the matrices are EXL3, and left alone where they are not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from importlib import import_module
from typing import Any

import torch

from serve.plugin import dispatch, operators
from serve.plugin.linear import Exl3LinearMethod
from serve.plugin.together import Together
from serve.witness.processor import Linear

_CLASS = ("vllm.models.deepseek_v4.attention", "DeepseekV4Attention")
_COMPRESSOR = "compressor.fused_wkv_wgate"
_QUERY_FAN = "query_fan"
_FAN = "carve_fan"
"""Where an attention keeps its fan."""


def adapt() -> None:
    """Step around vLLM's own arithmetic in every backend's class of this attention. Idempotent."""
    base = getattr(import_module(_CLASS[0]), _CLASS[1])
    replaced = {
        "_o_proj": _output_or,
        "_run_parallel_input_projections": _fan_or,
        "attn_gemm_parallel_execute": _fan_or,  # the same step in vLLM 0.26
    }
    for kind in _with_subclasses(base):
        for name, instead in replaced.items():
            theirs = vars(kind).get(name)
            if theirs is not None and not hasattr(theirs, "carve"):
                ours = instead(theirs)
                ours.carve = True  # type: ignore[attr-defined]  # a mark: a pack may be loaded twice in a process
                setattr(kind, name, ours)


def output_projection(attention: Any, o: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """``o`` [rows, this rank's heads, head_dim] through this rank's groups of ``wo_a``, then ``wo_b``: [rows, hidden].

    The last ``rope_head_dim`` channels of each head are first turned back by their position, in float32, in pairs of
    neighbours. A group's outputs are columns of one EXL3 matrix, and groups belong to ranks whole.
    """
    heads = turned_back(o, attention.rotary_emb.cos_sin_cache[positions], attention.rope_head_dim)
    method: Exl3LinearMethod = attention.wo_a.quant_method
    low = method.apply_groups(heads.reshape(len(o), attention.n_local_groups, -1))
    return _first(attention.wo_b(low.flatten(1)))


def turned_back(o: torch.Tensor, turns: torch.Tensor, width: int) -> torch.Tensor:
    """``o`` [rows, heads, head_dim], its last ``width`` channels turned by minus ``turns``.

    ``turns`` [rows, width]: cosines, then sines, of one angle for each pair of channels.
    """
    cosine, sine = (half.unsqueeze(1) for half in turns.float().chunk(2, dim=-1))
    kept, turning = o.split([o.shape[-1] - width, width], dim=-1)
    even, odd = turning.float().unflatten(-1, (-1, 2)).unbind(-1)
    turned = torch.stack((even * cosine + odd * sine, odd * cosine - even * sine), dim=-1)
    return torch.cat((kept, turned.flatten(-2).to(o.dtype)), dim=-1)


def input_projections(attention: Any, hidden: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    """What reads ``hidden`` [rows, hidden], every EXL3 member of it in one launch.

    As the class returns them: queries and keys, scores of the compressor and of the indexer's compressor (float32,
    which their softmax needs), the indexer's weights; None for what the layer does not have.
    """
    members = _members(attention)
    quantised = [module.quant_method.module for module in members.values() if _is_exl3(module)]
    fan = _fan(attention, quantised)
    parts = iter(operators.fan(hidden, fan, quantised)) if fan else iter(())
    found = {}
    for name, module in members.items():
        if _is_exl3(module):
            found[name] = next(parts)
        elif name.endswith(_COMPRESSOR):
            found[name] = _scores(hidden, module.weight)
        else:
            found[name] = _first(module(hidden))
    scores = [found.get(name) for name in (_COMPRESSOR, f"indexer.{_COMPRESSOR}")]
    wide = [None if one is None else one.float() for one in scores]
    return found["fused_wqa_wkv"], *wide, found.get("indexer.weights_proj")


def share_queries(attention: Any) -> None:
    """One launch for queries and the indexer's queries where both are EXL3, and one stream for all of this attention.

    The class calls the two in two places, the second on a stream of its own, where it would run beside the first one's
    barriers and scratch. Done at an attention's first call: that is a warm-up, and never a capture.
    """
    query, index_query = _below(attention, "wq_b"), _below(attention, "indexer.wq_b")
    if not (_is_exl3(query) and _is_exl3(index_query)) or query.quant_method.together is not None:
        return
    attention.aux_stream_list = None
    first, second = query.quant_method.module, index_query.quant_method.module
    fan = dispatch.prepare().register_fan(f"{attention.prefix}.{_QUERY_FAN}", [first, second])
    query.quant_method.together = index_query.quant_method.together = Together(fan, first, second)


def _scores(hidden: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """A compressor's scores from a dense weight, summed and kept in float32."""
    if hidden.is_cuda:
        return torch.mm(hidden, weight.T, out_dtype=torch.float32)
    return hidden.float() @ weight.float().T


def _members(attention: Any) -> dict[str, Any]:
    """The linears that read the hidden state, by name below the attention."""
    names = ("fused_wqa_wkv", _COMPRESSOR, "indexer.weights_proj", f"indexer.{_COMPRESSOR}")
    found = {name: _below(attention, name) for name in names}
    return {name: module for name, module in found.items() if module is not None}


def _below(module: Any, name: str) -> Any:
    for part in name.split("."):
        module = getattr(module, part, None)
    return module


def _fan(attention: Any, members: list[Linear]) -> Linear | None:
    """The attention's fan, made at its first call: that is a warm-up, and never a capture."""
    if not members:
        return None
    if not hasattr(attention, _FAN):
        made = members[0] if len(members) == 1 else dispatch.prepare().register_fan(f"{attention.prefix}.fan", members)
        setattr(attention, _FAN, made)
    found: Linear = getattr(attention, _FAN)
    return found


def _is_exl3(module: Any) -> bool:
    return isinstance(getattr(module, "quant_method", None), Exl3LinearMethod)


def _first(answer: Any) -> torch.Tensor:
    found: torch.Tensor = answer[0] if isinstance(answer, tuple) else answer
    return found


def _output_or(theirs: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(theirs)
    def project(self: Any, o: torch.Tensor, positions: torch.Tensor) -> Any:
        return output_projection(self, o, positions) if _is_exl3(self.wo_a) else theirs(self, o, positions)

    return project


def _fan_or(theirs: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(theirs)
    def project(self: Any, hidden_states: torch.Tensor) -> Any:
        share_queries(self)
        quantised = any(_is_exl3(module) for module in _members(self).values())
        return input_projections(self, hidden_states) if quantised else theirs(self, hidden_states)

    return project


def _with_subclasses(kind: type) -> Iterator[type]:
    yield kind
    below: list[type] = kind.__subclasses__()
    for each in below:
        yield from _with_subclasses(each)
