"""Which modules of a served class can be EXL3: their prefixes and effective parallelism, asked of the class itself.

The class is built from a pack's configuration on the meta device, so without weights and without a GPU, as one rank of
a group that is only claimed::

    python -m serve.plugin.module_map FOLDER --ranks 8 [--draft]
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.distributed import parallel_state
from vllm.engine.arg_utils import EngineArgs
from vllm.model_executor.layers.fused_moe.routed_experts import RoutedExperts
from vllm.model_executor.layers.linear import LinearBase, UnquantizedLinearMethod
from vllm.model_executor.layers.quantization.base_config import QuantizationConfig
from vllm.platforms import current_platform
from vllm.platforms.interface import DeviceCapability

from runner.errors import InputError
from serve.plugin.headers import packed_parts
from serve.plugin.linear import effective_parallel

ARCHITECTURE = "DeepseekV4ForCausalLM"
_GROUPS = {"_TP": True, "_EP": True, "_WORLD": True, "_PP": False, "_DP": False, "_PCP": False, "_DCP": False}
"""vLLM's groups, and whether they span the claimed ranks."""


@dataclass(frozen=True)
class Served:
    """One module that asked, or could have asked, for a quantisation method."""

    prefix: str
    kind: str
    ranks: int
    """Over how many it is cut."""
    inputs: int
    outputs: int
    """Widths of this rank."""
    parts: tuple[str, ...]
    """What is packed side by side, by the last word of the names in the pack; none for a module of one matrix."""
    obstacle: str
    """Why an EXL3 matrix could not be served here; empty where it could."""


class Asked(QuantizationConfig):
    """Remembers who asked for a method, and gives none."""

    def __init__(self) -> None:
        super().__init__()
        self.prefixes: dict[int, str] = {}

    def get_name(self) -> str:
        return "asked"

    def get_supported_act_dtypes(self) -> list[torch.dtype]:
        return [torch.bfloat16]

    @classmethod
    def get_min_capability(cls) -> int:
        return 0

    @staticmethod
    def get_config_filenames() -> list[str]:
        return []

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Asked:
        return cls()

    def get_quant_method(self, layer: torch.nn.Module, prefix: str) -> Any:
        self.prefixes[id(layer)] = prefix
        return UnquantizedLinearMethod() if isinstance(layer, LinearBase) else None


@contextmanager
def claimed(rank: int, ranks: int) -> Iterator[None]:
    """vLLM's groups as if this process were ``rank`` of ``ranks``; nothing may communicate meanwhile."""
    kept = {name: getattr(parallel_state, name, None) for name in _GROUPS}
    for name, whole in _GROUPS.items():
        size, own = (ranks, rank) if whole else (1, 0)
        group = SimpleNamespace(
            world_size=size, rank_in_group=own, rank=own, local_rank=own, is_first_rank=True, is_last_rank=True
        )
        group.ranks, group.device_group, group.cpu_group = list(range(size)), None, None
        setattr(parallel_state, name, group)
    try:
        yield
    finally:
        for name, before in kept.items():
            setattr(parallel_state, name, before)


def configuration(folder: Path) -> VllmConfig:
    """vLLM's own configuration of a pack, without tokenizer and weights."""
    arguments = EngineArgs(
        model=str(folder), skip_tokenizer_init=True, load_format="dummy", enforce_eager=True, dtype="bfloat16"
    )
    found: VllmConfig = arguments.create_engine_config()
    found.cache_config.cache_dtype = "fp8"  # DeepSeek-V4's layout takes no other, and a CPU would not start with it
    return found


def build(
    kind: type[torch.nn.Module], config: VllmConfig, rank: int, ranks: int, *, draft: bool = False
) -> tuple[torch.nn.Module, Asked]:
    """An instance of ``kind`` on the meta device, and who asked for a method while it was made.

    A class of ``draft`` layers asks for the model that it drafts for.
    """
    asked = Asked()
    config.quant_config = asked
    if draft:
        config.speculative_config = SimpleNamespace(
            draft_model_config=config.model_config, num_speculative_tokens=1, method="mtp"
        )
    with claimed(rank, ranks), set_current_vllm_config(config), without_cuda(), torch.device("meta"):
        return kind(vllm_config=config, prefix=""), asked


@contextmanager
def without_cuda() -> Iterator[None]:
    """Streams, events and the device's capability that a class asks for while it is made, where there is no device."""
    hopper = DeviceCapability(9, 0)
    with (
        patch.object(torch.cuda, "Stream", _Absent),
        patch.object(torch.cuda, "Event", _Absent),
        patch.object(type(current_platform), "get_device_capability", classmethod(lambda cls, device_id=0: hopper)),
    ):
        yield


class _Absent:
    """Made, and never used: nothing runs on the meta device."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        """Takes what the real one takes."""


def served(model: torch.nn.Module, asked: Asked) -> Iterator[Served]:
    """Every linear and every layer's routed experts, in the order of the class."""
    declared = getattr(type(model), "packed_modules_mapping", {})
    for place, module in model.named_modules():
        prefix = asked.prefixes.get(id(module), getattr(module, "prefix", place) or place)
        if isinstance(module, RoutedExperts):
            parallel = module.moe_config.moe_parallel_config
            inputs, outputs = (
                int(width)
                for width in (module.moe_config.hidden_dim, module.moe_config.intermediate_size_per_partition)
            )
            yield Served(prefix, type(module).__name__, int(parallel.tp_size), inputs, outputs, (), "")
        elif isinstance(module, LinearBase):
            ranks = effective_parallel(module)[1]
            inputs = int(getattr(module, "input_size_per_partition", module.input_size))
            outputs = int(getattr(module, "output_size_per_partition", module.output_size))
            obstacle = "" if id(module) in asked.prefixes else "built without a quantisation configuration"
            if getattr(module, "is_bmm", False):
                obstacle = "its weight is read by a batched product, it is never called as a linear"
            parts = tuple(packed_parts(declared, prefix))
            yield Served(prefix, type(module).__name__, ranks, inputs, outputs, parts, obstacle)


def text(rows: Iterator[Served]) -> str:
    """One line each."""
    lines = [
        f"{row.prefix:<58} {row.kind:<28} /{row.ranks:<3} {row.inputs:>6} -> {row.outputs:<6} "
        f"{'+'.join(row.parts)}{'  NOT: ' + row.obstacle if row.obstacle else ''}".rstrip()
        for row in rows
    ]
    return "\n".join(lines)


def looked_at(folder: Path, rank: int, ranks: int, *, draft: bool) -> str:
    """The map of a folder's class, or of its draft layers'.

    Raises InputError where there is no configuration of DeepSeek-V4, no such rank, or vLLM refuses to build it so.
    """
    if not 0 <= rank < ranks:
        raise InputError("no such rank", where="--rank", expected=f"0 to {ranks - 1}", found=str(rank))
    where = folder / "config.json"
    try:
        named = json.loads(where.read_bytes())
    except (OSError, ValueError) as error:
        raise InputError("no configuration of a model", where=str(where), found=str(error)) from error
    architectures = named.get("architectures") if isinstance(named, dict) else None
    if architectures != [ARCHITECTURE]:
        raise InputError("another class", where=str(where), expected=ARCHITECTURE, found=str(architectures))
    from vllm.models.deepseek_v4 import DeepseekV4ForCausalLM, DeepSeekV4MTP  # noqa: PLC0415 (needs its own imports)

    kind = DeepSeekV4MTP if draft else DeepseekV4ForCausalLM
    try:
        return text(served(*build(kind, configuration(folder), rank, ranks, draft=draft)))
    except (ValueError, TypeError, AttributeError, AssertionError) as error:  # how vLLM refuses a configuration
        raise InputError(
            "vLLM does not build it", where=str(where), found=str(error) or type(error).__name__
        ) from error


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--draft", action="store_true", help="the draft layers' class instead")
    given = parser.parse_args()
    try:
        print(looked_at(given.folder, given.rank, given.ranks, draft=given.draft))
    except InputError as error:
        print(error, file=sys.stderr)
        raise SystemExit(error.exit_code) from error


if __name__ == "__main__":
    main()
