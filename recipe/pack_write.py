"""Write an EXL3 pack: one safetensors file a layer, an index, and a configuration that says what the headers say."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from carve_kernels.exl3 import pack_format
from carve_kernels.exl3.codebook import Codebook
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import save_file

from recipe import json_stream
from recipe.blocks import COMPRESSION, CONFIG, OWN_FILE, USUAL, blocks_of, with_blocks
from recipe.census import bits_of
from recipe.closure import INDEX, QUANTISATION, is_bytecode, json_object, small_files
from recipe.configured import anew, head_told, quantisation_blocks
from recipe.headers import Entry, Header
from recipe.pack import Pack
from runner.digest import sha256_file
from runner.errors import StateError
from runner.model.product import PROVENANCE

Tensors = Mapping[str, NDArray[Any]]


def shard_name(number: int, count: int) -> str:
    """Name of shard ``number`` (from 1) of ``count``, as Hugging Face writes it."""
    return f"model-{number:05}-of-{count:05}.safetensors"


def write_shard(path: Path, tensors: Tensors) -> None:
    """Write one safetensors file; it appears under its name only when it is complete."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        save_file({name: np.ascontiguousarray(array) for name, array in tensors.items()}, partial, {"format": "pt"})
    except SafetensorError as error:  # the library's name for whatever the file system refuses
        partial.unlink(missing_ok=True)
        raise StateError(
            "a file of weights could not be written",
            where=str(path),
            found=str(error),
            next_step="free the disk or mend the permissions, then run the same again",
        ) from error
    partial.chmod(0o644)
    partial.replace(path)


def write_index(folder: Path, headers: Iterable[Header]) -> None:
    """Write the index of the files with these headers."""
    write_json(folder / INDEX, index_of(headers))


def index_of(headers: Iterable[Header]) -> dict[str, Any]:
    """The index: each tensor's file, and the bytes of all."""
    entries = [entry for header in headers for entry in header.entries]
    where = {entry.name: entry.file.name for entry in entries}
    return {
        "metadata": {"total_size": sum(entry.nbytes for entry in entries)},
        "weight_map": dict(sorted(where.items())),
    }


def write_json(path: Path, value: object) -> None:
    """Write JSON for people to read, with a final newline."""
    json_stream.write(path, value)


def quantization_config(tensors: Iterable[tuple[str, tuple[int, ...]]]) -> dict[str, Any]:
    """The ``quantization_config`` of a pack, from the names and shapes of all its tensors and from nothing else.

    ``bits`` is the mean over coded weights, ``codebook`` that of most of them; ``tensor_storage`` names each coded
    module with its own.
    """
    shapes = dict(tensors)
    modules = pack_format.modules(shapes)
    books = {module: pack_format.codebook_of(module, shapes) for module in modules}
    bits = {module: bits_of(shapes[f"{module}.trellis"]) for module in modules}
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


def configurations(source: Path, tensors: Mapping[str, Entry]) -> dict[str, dict[str, Any]]:
    """Every configuration file of ``source`` by name, with quantisation blocks that say what ``tensors`` are."""
    config = json_object((source / CONFIG).read_bytes()) or {}
    before = quantisation_blocks(source)
    own = quantization_config((name, entry.shape) for name, entry in tensors.items())
    others = blocks_of({CONFIG: config}).keys() - {USUAL}
    stale = {place for place in others if COMPRESSION in place.keys}  # that is another method's word
    if head := head_told(before.values()):
        own = anew(own | head, tensors, config)
    made = dict.fromkeys({USUAL, *others - stale}, own)
    if (block := before.get(OWN_FILE)) is not None:
        made[OWN_FILE] = anew(block | head, tensors, config)
    return with_blocks({CONFIG: config}, made, stale)


def kept_files(source: Path) -> dict[str, Path]:
    """Tokenizer, templates and notes by their path in the pack: everything but what is written anew."""
    own = {CONFIG, QUANTISATION, INDEX, PROVENANCE}
    found = {file.relative_to(source).as_posix(): file for file in small_files(source)}
    return {name: file for name, file in found.items() if name not in own}


def file_faults(source: Pack, folder: Path, written: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Files of a product that are not the ``written`` (name to JSON), not as the source has them, or lost, or strange.

    At any depth; weights are looked at elsewhere.
    """
    for name, content in written.items():
        if not _says(folder / name, content):
            yield f"{name} is not what the tensors and the order make it"
    kept = kept_files(source.folder)
    wanted = {header.file.name for header in source.headers} | {*written, PROVENANCE, *kept}
    there = {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if (path.is_symlink() or not path.is_dir()) and not is_bytecode(path)
    }
    yield from (f"{name} belongs to nothing" for name in sorted(there - wanted))
    yield from (f"{name} was not copied" for name in sorted(kept.keys() - there))
    for name in sorted(kept.keys() & there):
        if sha256_file(folder / name) != sha256_file(kept[name]):
            yield f"{name} should be unchanged and is not"


def _says(file: Path, content: Mapping[str, Any]) -> bool:
    if not file.is_file():
        return False
    return json_stream.same(file, content) or json_object(file.read_bytes()) == json.loads(json.dumps(content))


def copy_small_files(source: Path, folder: Path) -> None:
    """Copy :func:`kept_files`."""
    for name, file in kept_files(source).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, folder / name)
