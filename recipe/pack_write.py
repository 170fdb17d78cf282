"""Write an EXL3 pack: one safetensors file a layer, an index, and a configuration that says what the headers say."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from carve_kernels.exl3 import pack_format
from carve_kernels.exl3.codebook import Codebook
from numpy.typing import NDArray
from safetensors.numpy import save_file

from recipe.pack import INDEX

Tensors = Mapping[str, NDArray[Any]]


def shard_name(number: int, count: int) -> str:
    """Name of shard ``number`` (from 1) of ``count``, as Hugging Face writes it."""
    return f"model-{number:05}-of-{count:05}.safetensors"


def write_shard(path: Path, tensors: Tensors) -> None:
    """Write one safetensors file; it appears under its name only when it is complete."""
    partial = path.with_name(f".{path.name}.partial")
    save_file({name: np.ascontiguousarray(array) for name, array in tensors.items()}, partial, {"format": "pt"})
    partial.chmod(0o644)
    partial.replace(path)


def write_index(folder: Path, shards: Mapping[str, Mapping[str, int]]) -> None:
    """Write the index of ``shards``: file name to its tensors' names and bytes."""
    where = {name: file for file, tensors in shards.items() for name in tensors}
    total = sum(size for tensors in shards.values() for size in tensors.values())
    write_json(folder / INDEX, {"metadata": {"total_size": total}, "weight_map": dict(sorted(where.items()))})


def write_json(path: Path, value: object) -> None:
    """Write JSON for people to read, with a final newline."""
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def quantization_config(tensors: Iterable[tuple[str, tuple[int, ...]]]) -> dict[str, Any]:
    """The ``quantization_config`` of a pack, from the names and shapes of all its tensors and from nothing else.

    ``bits`` is the mean over coded weights, ``codebook`` that of most of them; ``tensor_storage`` names each coded
    module with its own.
    """
    shapes = dict(tensors)
    modules = pack_format.modules(shapes)
    books = {module: pack_format.codebook_of(module, shapes) for module in modules}
    bits = {module: shapes[f"{module}.trellis"][2] // 16 for module in modules}
    weights = {module: shapes[f"{module}.trellis"][0] * shapes[f"{module}.trellis"][1] * 256 for module in modules}
    mean = sum(weights[module] * bits[module] for module in modules) / max(1, sum(weights.values()))
    of_book = {book: sum(weights[module] for module in modules if books[module] is book) for book in Codebook}
    book = max(Codebook, key=lambda book: of_book[book])
    storage = {
        module: {"quant_format": "exl3", "bits_per_weight": bits[module], "codebook": books[module].value}
        for module in modules
    }
    found = {"quant_method": "exl3", "bits": round(mean, 4), "codebook": book.value, "tensor_storage": storage}
    if book in pack_format.MARKERS:
        found["codebook_marker"] = pack_format.MARKERS[book]
    return found


def small_files(source: Path) -> list[Path]:
    """Tokenizer, templates and notes: everything but weights, index and configuration, which are written anew."""
    own = {"config.json", INDEX}
    return [
        file
        for file in sorted(source.iterdir())
        if file.is_file() and file.suffix != ".safetensors" and file.name not in own
    ]


def copy_small_files(source: Path, folder: Path) -> None:
    """Copy :func:`small_files`."""
    for file in small_files(source):
        shutil.copyfile(file, folder / file.name)
