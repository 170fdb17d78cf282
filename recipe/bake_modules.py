"""Which modules a bake codes: names of known architectures as data, patterns, groups that must have one K."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from recipe.headers import Entry
from recipe.pack import Pack
from runner.errors import InputError
from runner.model.order.bake import Bake

_PLAIN = ("F16", "BF16", "F32")
_WEIGHT = ".weight"


@dataclass(frozen=True)
class Linear:
    """One linear of an architecture, below its layer."""

    name: str
    group: str = ""
    """The served module it is fused into; all parts of one have one K. Empty: itself."""
    slices: int = 1
    """Into how many modules its outputs are cut (``<name>.slice.<rank>``), each coded for itself, all with one K."""


PRESETS: dict[str, tuple[Linear, ...]] = {
    "glm4-moe-attention": (
        *(Linear(f"self_attn.{part}_proj", "self_attn.qkv_proj") for part in "qkv"),
        Linear("self_attn.o_proj"),
    ),
    "deepseek-v4-dense": (
        Linear("attn.wq_a", "attn.fused_wqa_wkv"),
        Linear("attn.wkv", "attn.fused_wqa_wkv"),
        Linear("attn.wq_b"),
        Linear("attn.wo_a", slices=8),
        Linear("attn.wo_b"),
        *(Linear(f"attn.compressor.{part}", "attn.compressor.fused_wkv_wgate") for part in ("wkv", "wgate")),
        Linear("attn.indexer.wq_b"),
        *(
            Linear(f"attn.indexer.compressor.{part}", "attn.indexer.compressor.fused_wkv_wgate")
            for part in ("wkv", "wgate")
        ),
        *(Linear(f"ffn.shared_experts.{part}", "ffn.shared_experts.gate_up_proj") for part in ("w1", "w3")),
        Linear("ffn.shared_experts.w2"),
    ),
}
"""Campaign sections 1.2 (T4), 5.6: 15 such modules in layers 0 and 1, 17 in odd ones, 20 in even ones; 790 in all."""


SERVED_AS_ONE = (
    ("q_proj", "k_proj", "v_proj"),
    ("gate_proj", "up_proj"),
    ("q_a_proj", "kv_a_proj_with_mqa"),
    ("wq_a", "wkv"),
    ("wkv", "wgate"),
    ("w1", "w3"),
)
"""Siblings that vLLM joins into one module, whatever the architecture."""


_TABLES = (
    *("embed", "embed_tokens", "embedding", "embeddings", "word_embeddings", "tok_embeddings"),
    *("embed_positions", "position_embeddings", "wte", "wpe"),
)
NEVER_CODED = dict.fromkeys(_TABLES, "an embedding table, of which rows are taken")
NEVER_CODED |= dict.fromkeys(("gate", "router"), "a router, which vLLM keeps as it is whatever the architecture")
NEVER_CODED |= {
    "eh_proj": "the draft layer's projection, which vLLM keeps as it is",
    "weights_proj": "the indexer's weights, which vLLM keeps as they are",
}
"""Last names of modules that no engine of ours boots with coded, and what they are: vLLM asks the quantisation method
of linears and of the head, but not of these."""


@dataclass(frozen=True)
class Target:
    """One module to be coded."""

    name: str
    weight: str
    """The source's tensor ``[out, in]`` that it comes from."""
    bits: int
    group: str
    slice: int = 0
    slices: int = 1


def resolve(recipe: Bake, weights: Mapping[str, Entry]) -> tuple[Target, ...]:
    """Every module of the bake, in the order of layers.

    ``weights`` are the tensors of the source. Raises InputError for a pattern that names nothing, a module without a
    rate, a count other than the order's, parts of a fused module with different bits, weights that cannot be coded, and
    those that no engine serves coded (:data:`NEVER_CODED`).
    """
    found = {target.name: target for target in _named(recipe, weights)}
    if recipe.count is not None and len(found) != recipe.count:
        raise InputError("the bake has another number of modules", expected=str(recipe.count), found=str(len(found)))
    if not found:
        raise InputError("the bake names no module of the source", expected=recipe.preset or ", ".join(recipe.modules))
    groups: dict[str, set[int]] = {}
    for target in found.values():
        groups.setdefault(target.group, set()).add(target.bits)
    for group, bits in groups.items():
        if len(bits) > 1:
            raise InputError("parts of one served module need one K", where=group, found=str(sorted(bits)))
    return tuple(sorted(found.values(), key=lambda target: (_number(target.name), target.name)))


def _named(recipe: Bake, weights: Mapping[str, Entry]) -> Iterator[Target]:
    linears = {linear.name: linear for linear in PRESETS.get(recipe.preset or "", ())}
    layer = re.compile(re.escape(recipe.prefix) + r"\.\d+\.")
    unused = set(recipe.modules)
    for tensor, entry in weights.items():
        if not tensor.endswith(_WEIGHT):
            continue
        name = tensor.removesuffix(_WEIGHT)
        prefix = match.group() if (match := layer.match(name)) else ""
        known = linears.get(name.removeprefix(prefix)) if prefix else None
        matched = {pattern for pattern in recipe.modules if fnmatchcase(name, pattern)}
        unused -= matched
        if (known or matched) and not any(fnmatchcase(name, pattern) for pattern in recipe.skip):
            yield from _targets(recipe, prefix, known or Linear(name.removeprefix(prefix)), entry)
    there = {*weights, *(tensor.rpartition(".")[0] for tensor in weights)}
    careful = {*recipe.skip, *(rate.modules for rate in recipe.rates)}  # may fit what the bake does not name
    unused |= {pattern for pattern in careful if not any(fnmatchcase(name, pattern) for name in there)}
    if unused:
        raise InputError(
            "a pattern names no module of the source",
            where=", ".join(sorted(unused)),
            expected="patterns under modules, skip and rates that each fit something in the source",
            found="none that fits",
            next_step="correct the pattern, or leave it out",
        )


def _targets(recipe: Bake, prefix: str, linear: Linear, entry: Entry) -> Iterator[Target]:
    name = prefix + linear.name
    if kept := NEVER_CODED.get(name.rpartition(".")[2]):
        raise InputError(
            "a module that cannot be served coded",
            where=name,
            expected="linears that vLLM lets a quantisation method serve",
            found=f"{kept}, {list(entry.shape)}",
            next_step=f"leave it out, for example with `skip: [{name}]`",
        )
    rows = entry.shape[0] if len(entry.shape) == 2 else 0
    unit = 128 * linear.slices
    if entry.dtype not in _PLAIN or not rows or rows % unit or entry.shape[1] % 128:
        raise InputError(
            "the weight cannot be coded",
            where=f"{entry.file} {entry.name}",
            expected=f"{' or '.join(_PLAIN)} [a multiple of {unit}, a multiple of 128]",
            found=f"{entry.dtype} {list(entry.shape)}",
            next_step="dequantise the source first, or skip the module",
        )
    fitting = [rate.bits for rate in recipe.rates if fnmatchcase(name, rate.modules)]
    if not fitting:
        raise InputError("a module has no rate", where=name, expected="a pattern under `rates` that fits", found="none")
    group = prefix + (linear.group or linear.name)
    for index in range(linear.slices):
        module = f"{name}.slice.{index}" if linear.slices > 1 else name
        yield Target(module, entry.name, fitting[-1], group, index, linear.slices)


def refuse_parted(base: Pack, codebook: str, targets: Sequence[Target]) -> None:
    """InputError where the product would hold the parts of a served module in several forms: its boot would refuse it.

    Only an engine that serves each part alone can load such a pack, and no seat has one.
    """
    forms: dict[str, object] = {}
    for tensor, entry in base.tensors.items():
        name, _, part = tensor.rpartition(".")
        if f".{part}" == _WEIGHT and name not in base.modules:
            forms[name] = f"plain {entry.dtype}"
    forms |= {name: f"K={module.bits} {module.codebook}" for name, module in base.modules.items()}
    forms |= {target.name: f"K={target.bits} {codebook}" for target in targets}
    for target in targets:
        parent, _, own = target.name.rpartition(".")
        for parts in SERVED_AS_ONE:
            told = {part: forms[f"{parent}.{part}"] for part in parts if f"{parent}.{part}" in forms}
            if own in parts and len(set(told.values())) > 1:
                raise InputError(
                    "parts of one served module would stand in several forms",
                    where=parent,
                    expected=f"{', '.join(told)} coded together, at one K and with one codebook",
                    found=", ".join(f"{part} {form}" for part, form in told.items()),
                    next_step="name all of these parts under `modules` with one rate, or none of them",
                )


def _number(name: str) -> int:
    numbers = re.findall(r"\.(\d+)\.", name)
    return int(numbers[0]) if numbers else -1
