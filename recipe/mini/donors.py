"""Packs that small overlay orders need beside the standing one, made of it by a seed and never committed."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from carve_kernels.exl3 import linear, pack_format, quantise
from carve_kernels.exl3.linear import Linear
from numpy.typing import NDArray

from recipe import pack_write, shard_write, whole_folder
from recipe.headers import Header, read_header
from recipe.mini.dequantise import coded
from recipe.pack import Pack, read_pack
from recipe.shard_write import Part
from runner.digest import sha256_bytes
from runner.errors import InputError
from runner.model.order.overlay import Generated

Arrays = dict[str, NDArray[Any]]
Stored = tuple[str, NDArray[Any]]
"""Type in the header and the bytes behind it."""
_BLOCK = 128
_FLOAT8 = 448.0
"""Largest value of F8_E4M3."""


def requantised_experts(standing: Path, folder: Path, words: Generated) -> None:
    """The pack with the experts of some layers taken apart and coded again at ``bits``, without calibration."""
    bits = words.bits
    if bits is None:
        raise InputError("the tool needs bits", where="generated", expected="bits: 2", found="none")
    pack = read_pack(standing)

    def again(name: str) -> Linear:
        weight = linear.dequantise(coded(pack, name))
        return quantise.quantise_linear(weight, bits, pack.modules[name].codebook, _seed(words, name)).linear

    names = _experts(pack, words)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        made = dict(zip(names, pool.map(again, names), strict=True))
    _write(pack, folder, {name: _coded(name, one) for name, one in made.items()})


def rescaled_experts(standing: Path, folder: Path, words: Generated) -> None:
    """The pack with the output scales of some layers' experts moved by about half a percent: made in a blink."""
    pack = read_pack(standing)
    replaced = {}
    for name in _experts(pack, words):
        whole = coded(pack, name)
        rng = np.random.default_rng(_seed(words, name))
        svh = (whole.svh.astype(np.float32) * rng.normal(1, 0.005, whole.svh.shape)).astype(np.float16)
        replaced[name] = _coded(name, replace(whole, svh=svh))
    _write(pack, folder, replaced)


def float8_experts(standing: Path, folder: Path, words: Generated) -> None:
    """The pack with the experts of some layers as F8_E4M3 in blocks of 128 by 128 with a float32 scale each."""
    pack = read_pack(standing)
    _write(
        pack, folder, {name: _float8(name, linear.dequantise(coded(pack, name)).T) for name in _experts(pack, words)}
    )


def _experts(pack: Pack, words: Generated) -> list[str]:
    prefixes = tuple(f"model.layers.{layer}.mlp.experts." for layer in words.layers)
    found = [name for name in pack.modules if name.startswith(prefixes)]
    if not found:
        raise InputError("no such experts", where=str(pack.folder), expected=", ".join(prefixes), found="none")
    return found


def _seed(words: Generated, name: str) -> int:
    return int(sha256_bytes(f"{words.tool}/{words.seed}/{name}".encode())[:16], 16)


def _coded(name: str, one: Linear) -> dict[str, Stored]:
    kinds = {np.dtype(np.int16): "I16", np.dtype(np.float16): "F16", np.dtype(np.int32): "I32"}
    return {part: (kinds[array.dtype], array) for part, array in pack_format.to_tensors(name, one).items()}


def _float8(name: str, weight: NDArray[np.floating]) -> dict[str, Stored]:
    """``weight`` [out, in] rounded to the nearest values of F8_E4M3, and the scales to multiply back with."""
    rows, columns = (size // _BLOCK for size in weight.shape)
    blocks = weight.astype(np.float32).reshape(rows, _BLOCK, columns, _BLOCK)
    scale = np.abs(blocks).max(axis=(1, 3), keepdims=True) / _FLOAT8
    codes = float8_codes(blocks / scale).reshape(weight.shape)
    return {
        f"{name}.weight": ("F8_E4M3", codes),
        f"{name}.weight_scale_inv": ("F32", scale.reshape(rows, columns).astype(np.float32)),
    }


def float8_codes(values: NDArray[np.floating]) -> NDArray[np.uint8]:
    """The nearest F8_E4M3 of each value, as its byte: sign, four bits of exponent (bias 7), three of mantissa."""
    table = float8_values()
    middles = (table[1:] + table[:-1]) / 2
    codes = np.searchsorted(middles, np.abs(values)).astype(np.uint8)
    return np.where(np.signbit(values), codes | 0x80, codes)


def float8_values() -> NDArray[np.float64]:
    """What the codes 0 to 126 stand for; 127 is not a number. Source: the OCP 8-bit floating point specification."""
    codes = np.arange(127)
    exponent, mantissa = codes >> 3, codes & 7
    return np.where(exponent == 0, mantissa / 8 * 2.0**-6, (1 + mantissa / 8) * 2.0 ** (exponent - 7))


def _write(pack: Pack, folder: Path, replaced: dict[str, dict[str, Stored]]) -> None:
    """A copy of ``pack`` with some modules' tensors exchanged, file by file."""
    with whole_folder.anew(folder) as partial:
        spool = partial / ".spool"
        for header in pack.headers:
            _write_shard(header, partial / header.file.name, spool, replaced)
        spool.unlink(missing_ok=True)
        pack_write.copy_small_files(pack.folder, partial)
        headers = [read_header(partial / header.file.name) for header in pack.headers]
        pack_write.write_index(partial, headers)
        _write_configuration(pack, partial, headers)


def _write_shard(header: Header, target: Path, spool: Path, replaced: dict[str, dict[str, Stored]]) -> None:
    mine = sorted({entry.name.rpartition(".")[0] for entry in header.entries} & replaced.keys())
    kept = [entry for entry in header.entries if entry.name.rpartition(".")[0] not in mine]
    parts = [Part.of(one) for one in kept]
    with spool.open("wb") as out:
        for module in mine:
            for name, (dtype, array) in replaced[module].items():
                parts.append(Part(name, dtype, array.shape, spool, out.tell(), array.nbytes))
                out.write(np.ascontiguousarray(array).tobytes())
    shard_write.write(target, shard_write.in_order(parts), header.metadata)


def _write_configuration(pack: Pack, partial: Path, headers: list[Header]) -> None:
    entries = {entry.name: entry for header in headers for entry in header.entries}
    for name, content in pack_write.configurations(pack.folder, entries).items():
        pack_write.write_json(partial / name, content)


PLAIN_TOOL = "float8-experts"
"""Its experts are a source's; an overlay takes coded ones."""
TOOLS: dict[str, Callable[[Path, Path, Generated], None]] = {
    "requantised-experts": requantised_experts,
    "rescaled-experts": rescaled_experts,
    PLAIN_TOOL: float8_experts,
}
"""By the name that an order uses; each takes the standing pack, the folder to make and the order's words."""
