"""Bake a float Glm4Moe checkpoint into an EXL3 pack.

    python -m recipe.mini.bake CHECKPOINT PACK --experts 2,3 --mlp 4 --calibration train.jsonl

The pack is built in a hidden folder beside its name and takes the name when it is complete. A bake that was interrupted
goes on with the first layer that is not finished, provided checkpoint and settings are the same. The search runs
outside the interpreter's lock, so threads use all cores. ``bake.json`` in the pack keeps the settings and the error of
every module.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from carve_kernels.exl3 import pack_format, quantise
from carve_kernels.exl3.codebook import Codebook
from numpy.typing import NDArray

from recipe import pack_write
from recipe.headers import Entry, PackError, read_header
from recipe.mini.glm import coded_modules, layer_of
from runner.digest import sha256_bytes, sha256_json, sha256_tree
from runner.errors import InputError

REPORT = "bake.json"
_STATE = ".settings.json"
_FLOAT32 = ("mlp.gate.weight", "mlp.gate.e_score_correction_bias")
"""Routing decides between near ties: its parameters keep single precision."""

Hessians = Mapping[str, NDArray[np.floating]]


@dataclass(frozen=True)
class Settings:
    """All that the bits of a pack depend on besides the checkpoint."""

    expert_bits: tuple[tuple[int, int], ...]
    mlp_bits: int = 4
    codebook: Codebook = Codebook.MCG
    seed: int = 0


def bake(
    checkpoint: Path, folder: Path, settings: Settings, hessians: Hessians | None = None, threads: int | None = None
) -> dict[str, Any]:
    """Bake ``checkpoint`` into ``folder`` and return the report that the pack keeps.

    ``hessians`` maps a module's name to the mean of ``x^T x`` over its calibration inputs; modules it lacks are coded
    without. Raises InputError for a checkpoint that lacks a tensor or holds values that 16 bits cannot, StateError
    where ``folder`` exists.
    """
    config = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))
    entries = _entries(checkpoint)
    coded = coded_modules(config, settings.expert_bits, settings.mlp_bits)
    absent = [name for name in coded if f"{name}.weight" not in entries]
    if absent:
        missing = f"none of {absent[:3]}"
        raise InputError("checkpoint lacks weights", where=str(checkpoint), expected="every module", found=missing)
    identity = _identity(checkpoint, settings, hessians)
    partial = _resume_or_start(folder, identity)
    layers = sorted({layer_of(name) for name in entries}, key=lambda layer: -1 if layer is None else layer)
    with ThreadPoolExecutor(threads or os.cpu_count()) as pool:
        for number, layer in enumerate(layers, start=1):
            file = partial / pack_write.shard_name(number, len(layers))
            if _finished(file):
                continue
            mine = {name: entry for name, entry in entries.items() if layer_of(name) == layer}
            tensors, errors = _bake_layer(mine, coded, settings, hessians or {}, pool)
            pack_write.write_json(_errors_of(file), errors)
            pack_write.write_shard(file, tensors)
            print(f"layer {layer if layer is not None else '-'} ({number}/{len(layers)})", flush=True)
    return _complete(checkpoint, partial, folder, identity, settings.codebook)


def _entries(checkpoint: Path) -> dict[str, Entry]:
    files = sorted(checkpoint.glob("*.safetensors"))
    return {entry.name: entry for file in files for entry in read_header(file).entries}


def _identity(checkpoint: Path, settings: Settings, hessians: Hessians | None) -> dict[str, Any]:
    weights = sorted(checkpoint.glob("*.safetensors"))
    calibrated = {name: sha256_bytes(np.ascontiguousarray(array).tobytes()) for name, array in (hessians or {}).items()}
    return {
        "checkpoint": sha256_tree(checkpoint, [*weights, checkpoint / "config.json"]),
        "calibration": sha256_json(calibrated) if calibrated else None,
        "settings": json.loads(json.dumps(asdict(settings))),
    }


def _resume_or_start(folder: Path, identity: dict[str, Any]) -> Path:
    partial = pack_write.partial_folder(folder)
    state = partial / _STATE
    if state.is_file() and json.loads(state.read_text(encoding="utf-8")) == identity:
        return partial
    pack_write.fresh(partial)
    pack_write.write_json(state, identity)
    return partial


def _finished(file: Path) -> bool:
    try:
        read_header(file)
    except PackError:
        return False
    return True


def _errors_of(file: Path) -> Path:
    return file.with_name(f".errors-{file.stem}.json")


def _bake_layer(
    entries: dict[str, Entry],
    coded: dict[str, int],
    settings: Settings,
    hessians: Hessians,
    pool: ThreadPoolExecutor,
) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    def bake_one(name: str) -> quantise.Quantised:
        seed = int(sha256_bytes(f"{settings.seed}/{name}".encode())[:16], 16)
        weight = entries[f"{name}.weight"].read().T
        return quantise.quantise_linear(weight, coded[name], settings.codebook, seed, hessians.get(name))

    modules = [name for name in coded if f"{name}.weight" in entries]
    tensors: dict[str, NDArray[Any]] = {}
    errors: dict[str, Any] = {}
    for name, result in zip(modules, pool.map(bake_one, modules), strict=True):
        tensors |= pack_format.to_tensors(name, result.linear)
        errors[name] = {
            "bits": result.linear.bits,
            "relative_error": round(result.relative_error, 6),
            "output_error": None if result.output_error is None else round(result.output_error, 6),
        }
    for name, entry in entries.items():
        if name.removesuffix(".weight") not in coded:
            tensors[name] = _plain(entry)
    return tensors, errors


def _plain(entry: Entry) -> NDArray[Any]:
    """An uncoded tensor: 16 bit, the router 32 bit."""
    array = entry.read()
    if array.dtype.kind != "f":
        return array
    kind = np.float32 if entry.name.endswith(_FLOAT32) else np.float16
    limit = float(np.finfo(kind).max)
    if not np.isfinite(array).all() or float(np.abs(array).max(initial=0)) > limit:
        raise InputError(
            "value out of range", where=entry.name, expected=f"at most {limit}", found="more or not finite"
        )
    return array.astype(kind)


def _complete(
    checkpoint: Path, partial: Path, folder: Path, identity: dict[str, Any], book: Codebook
) -> dict[str, Any]:
    held = {file.name: read_header(file).entries for file in sorted(partial.glob("*.safetensors"))}
    pack_write.write_index(partial, {file: {e.name: e.stop - e.start for e in held[file]} for file in held})
    shapes = [(entry.name, entry.shape) for entries in held.values() for entry in entries]
    quantised = pack_write.quantization_config(shapes, book)
    config = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))
    pack_write.write_json(partial / "config.json", config | {"dtype": "float16", "quantization_config": quantised})
    errors: dict[str, Any] = {}
    for file in held:
        errors |= json.loads(_errors_of(partial / file).read_text(encoding="utf-8"))
    report = {**identity, "bits": quantised["bits"], "modules": errors}
    pack_write.write_json(partial / REPORT, report)
    pack_write.copy_small_files(checkpoint, partial)
    for state in partial.glob(".*.json"):
        state.unlink()
    pack_write.publish(partial, folder)
    return report


def expert_bits(text: str) -> tuple[tuple[int, int], ...]:
    """``2,3`` or ``2/3,3``: bits of each layer's experts, cycled; after a slash the down projection's, if different."""
    layers = [part.split("/") for part in text.split(",")]
    return tuple((int(part[0]), int(part[-1])) for part in layers)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("pack", type=Path)
    parser.add_argument("--experts", type=expert_bits, default=expert_bits("2,3"), help="bits by layer, cycled: 2,3")
    parser.add_argument("--mlp", type=int, default=4, help="bits of dense MLP and shared experts")
    parser.add_argument("--codebook", type=Codebook, choices=list(Codebook), default=Codebook.MCG)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--calibration", type=Path, help="JSON lines of training texts; needs the engine extra")
    parser.add_argument("--documents", type=int, default=64, help="how many of them")
    arguments = parser.parse_args()
    settings = Settings(arguments.experts, arguments.mlp, arguments.codebook, arguments.seed)
    hessians = None
    if arguments.calibration:
        from recipe.mini import calibrate  # noqa: PLC0415 - torch is no base dependency

        hessians = calibrate.hessians(arguments.checkpoint, calibrate.texts(arguments.calibration, arguments.documents))
    report = bake(arguments.checkpoint, arguments.pack, settings, hessians)
    by_bits: dict[int, list[float]] = {}
    for module in report["modules"].values():
        by_bits.setdefault(module["bits"], []).append(module["relative_error"])
    for bits, errors in sorted(by_bits.items()):
        average, most = np.mean(errors), max(errors)
        print(f"K={bits}: {len(errors)} modules, relative error {average:.4f} on average, {most:.4f} at most")


if __name__ == "__main__":
    main()
