"""Code modules layer by layer: one file a layer, each whole or absent, so that an interrupted bake goes on.

The search runs outside the interpreter's lock, so threads use all cores. The bits of a module follow from its weight,
its name and the settings alone, never from the order of work.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from carve_kernels.exl3 import pack_format, quantise
from carve_kernels.exl3.codebook import Codebook
from numpy.typing import NDArray

from recipe import pack_write, whole_folder
from recipe.closure import json_object
from recipe.payload import sha256_of
from runner.digest import sha256_bytes
from runner.errors import InputError, StateError
from runner.files import write_whole

_STATE = ".settings.json"

Hessians = Mapping[str, NDArray[np.floating]]
"""Module name to the mean of ``x^T x`` over its calibration inputs."""

Quantiser = Callable[
    [NDArray[np.floating], int, Codebook, int, NDArray[np.floating] | None],
    quantise.Quantised,
]
"""Weight ``[in, out]``, bits, codebook, seed, Hessian ``[in, in]``, as ``carve_kernels.exl3.quantise`` takes them."""


@dataclass(frozen=True)
class Module:
    """One module to be coded."""

    name: str
    bits: int
    weight: Callable[[], NDArray[np.floating]]
    """``[in, out]``, read when its turn comes."""


@dataclass(frozen=True)
class Layer:
    """What goes into one file."""

    file: Path
    modules: Sequence[Module]
    plain: Callable[[], dict[str, NDArray[Any]]] = dict
    """Further tensors of the file."""


@dataclass(frozen=True)
class Coding:
    """How modules are coded."""

    codebook: Codebook
    seed: int
    quantiser: Quantiser = quantise.quantise_linear
    threads: int | None = None


def bake_layers(layers: Sequence[Layer], coding: Coding, hessians: Hessians, note: Callable[[str], None]) -> None:
    """Write every layer's file that is not whole yet, and beside it its digest and the error of each module."""
    with ThreadPoolExecutor(coding.threads or os.cpu_count()) as pool:
        for number, layer in enumerate(layers, start=1):
            if _finished(layer.file):
                continue
            tensors, errors = _code(layer, coding, hessians, pool)
            pack_write.write_shard(layer.file, tensors)
            noted = {"digest": sha256_of(layer.file), "modules": errors}
            write_whole(_errors_of(layer.file), json.dumps(noted, indent=1).encode())
            note(f"layer {number} of {len(layers)}: {len(layer.modules)} modules")


def errors_of(layers: Sequence[Layer]) -> dict[str, dict[str, Any]]:
    """Bits and errors of every module of finished layers."""
    found: dict[str, dict[str, Any]] = {}
    for layer in layers:
        found |= json.loads(_errors_of(layer.file).read_bytes())["modules"]
    return found


def begin(folder: Path, identity: dict[str, Any], *, restart: bool) -> Path:
    """``folder``, to be filled or gone on with.

    A folder that was begun with another ``identity`` (arguments, inputs, code) is started again, or refused with
    StateError naming what changed.
    """
    state = folder / _STATE
    if state.is_file():
        before = json_object(state.read_bytes()) or {}
        if before == identity:
            return folder
        if not restart:
            changed = sorted(name for name in before | identity if before.get(name) != identity.get(name))
            raise StateError(
                "arguments, inputs or code changed since this bake began",
                where=str(folder),
                expected="the same as at its beginning",
                found=f"changed: {', '.join(changed)}",
                next_step="start a new run; this one cannot be resumed",
            )
    whole_folder.fresh(folder)
    write_whole(state, json.dumps(identity, indent=1).encode())
    return folder


def clear_state(folder: Path) -> None:
    """Remove what only an unfinished bake needs."""
    for state in folder.glob(".*.json"):
        state.unlink()


def _finished(file: Path) -> bool:
    """Whether the file has the very bytes that its notes were written for, as the last thing of its layer."""
    notes = _errors_of(file)
    noted = json_object(notes.read_bytes()) if notes.is_file() else None
    return noted is not None and file.is_file() and sha256_of(file) == noted.get("digest")


def _errors_of(file: Path) -> Path:
    return file.with_name(f".errors-{file.stem}.json")


def _uncodable(module: Module, found: str) -> InputError:
    return InputError(
        "weights cannot be quantised",
        where=module.name,
        expected="finite numbers whose scales float16 can hold",
        found=found,
    )


def _code(
    layer: Layer, coding: Coding, hessians: Hessians, pool: ThreadPoolExecutor
) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    def code_one(module: Module) -> quantise.Quantised:
        seed = int(sha256_bytes(f"{coding.seed}/{module.name}".encode())[:16], 16)
        weight = module.weight()
        if not np.isfinite(weight).all():
            raise _uncodable(module, "infinity or NaN")
        try:
            with np.errstate(over="raise"):
                return coding.quantiser(weight, module.bits, coding.codebook, seed, hessians.get(module.name))
        except FloatingPointError as error:
            raise _uncodable(module, f"up to {np.abs(weight).max():.3g}") from error

    tensors: dict[str, NDArray[Any]] = {}
    errors: dict[str, Any] = {}
    for module, result in zip(layer.modules, pool.map(code_one, layer.modules), strict=True):
        tensors |= pack_format.to_tensors(module.name, result.linear)
        errors[module.name] = {
            "bits": result.linear.bits,
            "relative_error": round(result.relative_error, 6),
            "output_error": None if result.output_error is None else round(result.output_error, 6),
        }
    return tensors | layer.plain(), errors
