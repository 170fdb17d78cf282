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
import sys
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from carve_kernels.exl3.codebook import Codebook
from numpy.typing import NDArray

from recipe import bake_layers, pack_write, whole_folder
from recipe.bake_layers import Coding, Hessians, Layer, Module
from recipe.closure import weight_files
from recipe.disk import command
from recipe.headers import Entry, read_header
from recipe.mini.glm import coded_modules, layer_of
from runner.digest import sha256_bytes, sha256_json, sha256_tree
from runner.errors import InputError

REPORT = "bake.json"
_FLOAT32 = ("mlp.gate.weight", "mlp.gate.e_score_correction_bias")
"""Routing decides between near ties: its parameters keep single precision."""


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
    with whole_folder.building(folder) as building:
        bake_layers.begin(building, identity, restart=True)
        layers = _layers(building, entries, coded)
        coding = Coding(settings.codebook, settings.seed, threads=threads)
        bake_layers.bake_layers(layers, coding, hessians or {}, print)
        return _complete(checkpoint, building, folder, identity, layers)


def _layers(folder: Path, entries: dict[str, Entry], coded: dict[str, int]) -> list[Layer]:
    """One file a layer, embeddings and head first."""
    numbers = sorted({layer_of(name) for name in entries}, key=lambda layer: -1 if layer is None else layer)
    layers = []
    for place, number in enumerate(numbers, start=1):
        mine = {name: entry for name, entry in entries.items() if layer_of(name) == number}
        modules = [
            Module(name, bits, partial(_transposed, mine[f"{name}.weight"]))
            for name, bits in coded.items()
            if f"{name}.weight" in mine
        ]
        rest = [entry for name, entry in mine.items() if name.removesuffix(".weight") not in coded]
        layers.append(Layer(folder / pack_write.shard_name(place, len(numbers)), modules, partial(_all_plain, rest)))
    return layers


def _transposed(entry: Entry) -> NDArray[Any]:
    return entry.read().T


def _all_plain(entries: list[Entry]) -> dict[str, NDArray[Any]]:
    return {entry.name: _plain(entry) for entry in entries}


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
    checkpoint: Path, building: Path, folder: Path, identity: dict[str, Any], layers: list[Layer]
) -> dict[str, Any]:
    headers = [read_header(file) for file in weight_files(building)]
    pack_write.write_index(building, headers)
    shapes = [(entry.name, entry.shape) for header in headers for entry in header.entries]
    quantised = pack_write.quantization_config(shapes)
    config = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))
    pack_write.write_json(building / "config.json", config | {"dtype": "float16", "quantization_config": quantised})
    report = {**identity, "bits": quantised["bits"], "modules": bake_layers.errors_of(layers)}
    pack_write.write_json(building / REPORT, report)
    pack_write.copy_small_files(checkpoint, building)
    bake_layers.clear_state(building)
    whole_folder.publish(building, folder)
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
    sys.exit(command(main))
