"""Which modules of a pack are EXL3, and their shapes: from the tensor headers, never from the configuration."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from safetensors import safe_open

CODEBOOK_MARKERS = ("mcg", "mul1")
PARTS = ("trellis", "suh", "svh")


@dataclass(frozen=True)
class Header:
    """One quantised module of the pack."""

    bits: int
    in_features: int
    out_features: int
    codebook: str
    """``mcg``, ``mul1`` or ``default``."""


@cache
def read_headers(pack: str) -> dict[str, Header]:
    """Header of every EXL3 module in the ``*.safetensors`` of folder ``pack``, by checkpoint name.

    Raises ValueError where a trellis is malformed, lacks its vectors, or has two codebook markers.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    files = sorted(Path(pack).glob("*.safetensors"))
    if not files:
        raise ValueError(f"{pack}: no *.safetensors; an EXL3 pack is served from a local folder")
    for file in files:
        with safe_open(str(file), framework="numpy") as tensors:
            for name in tensors.keys():  # noqa: SIM118 (not a mapping)
                shapes[name] = tuple(tensors.get_slice(name).get_shape())
    names = (name.removesuffix(".trellis") for name in shapes if name.endswith(".trellis"))
    return {name: _header(name, shapes) for name in names}


def _header(name: str, shapes: dict[str, tuple[int, ...]]) -> Header:
    trellis = shapes[f"{name}.trellis"]
    if len(trellis) != 3 or trellis[2] % 16 or not 1 <= trellis[2] // 16 <= 8:
        raise ValueError(f"{name}.trellis: expected [in/16, out/16, 16·K] with K from 1 to 8, found {trellis}")
    for part, width in (("suh", trellis[0] * 16), ("svh", trellis[1] * 16)):
        if shapes.get(f"{name}.{part}") != (width,):
            raise ValueError(f"{name}.{part}: expected [{width}], found {shapes.get(f'{name}.{part}')}")
    codebooks = [marker for marker in CODEBOOK_MARKERS if f"{name}.{marker}" in shapes]
    if len(codebooks) > 1:
        raise ValueError(f"{name}: codebook markers {codebooks}, expected one at most")
    return Header(trellis[2] // 16, trellis[0] * 16, trellis[1] * 16, codebooks[0] if codebooks else "default")


def named_by(rename: Callable[[list[str]], list[str]], headers: dict[str, Header]) -> dict[str, Header]:
    """The same headers under the names of the served class.

    ``rename`` maps tensor names and leaves out those that the class does not serve.
    """
    found: dict[str, Header] = {}
    for name, header in headers.items():
        for new in rename([f"{name}.trellis"]):
            found[new.removesuffix(".trellis")] = header
    return found


PACKED = {
    "attn.fused_wqa_wkv": ("wq_a", "wkv"),
    "compressor.fused_wkv_wgate": ("wkv", "wgate"),
    "shared_experts.gate_up_proj": ("w1", "w3"),
}
"""What DeepSeek-V4 packs side by side: its class writes it in its loader alone (``stacked_params_mapping``)."""


def packed_parts(declared: Mapping[str, Iterable[str]], prefix: str) -> list[str]:
    """Names of the parts that a served module packs: as its class declares them, or as DeepSeek-V4 has them."""
    last_two = ".".join(prefix.split(".")[-2:])
    return list(declared.get(prefix.rpartition(".")[2], PACKED.get(last_two, ())))


def quantised_parts(headers: dict[str, Header], prefix: str, parts: Iterable[str]) -> list[str]:
    """The checkpoint names behind a served module: itself, or the ``parts`` packed into it; empty if in 16 bit.

    Raises ValueError where only some parts of a packed module are quantised.
    """
    base = prefix.rpartition(".")[0]
    names = [f"{base}.{part}" for part in parts] or [prefix]
    quantised = [name for name in names if name in headers]
    if quantised and len(quantised) != len(names):
        raise ValueError(f"{prefix}: of {names} only {quantised} are EXL3; a packed module is EXL3 or it is not")
    return quantised
