"""How the modules of a bake are coded: one by one on our calibration, or by exllamav3's conversion as a whole."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from carve_kernels.exl3 import linear, pack_format, quantise
from carve_kernels.exl3.codebook import Codebook
from numpy.typing import NDArray

from recipe import bake_layers, calibration, exllamav3_conversion, merge, pack_write, quantiser_exllamav3
from recipe.bake_layers import Coding, Layer, Module, Quantiser
from recipe.bake_modules import Target
from recipe.blocks import CONFIG
from recipe.census import layer_of
from recipe.exllamav3_conversion import Conversion
from recipe.headers import Entry, read_header
from recipe.model_size import own_layers
from recipe.pack import Pack
from recipe.product import Job
from runner.errors import InputError
from runner.model.order.bake import Bake

NATIVE = "native"
"""The quantiser whose every figure can be computed again here."""
QUANTISERS: dict[str, Quantiser] = {
    NATIVE: quantise.quantise_linear,
    "exllamav3": quantiser_exllamav3.quantise_linear,
}
CONVERSION = "exllamav3-conversion"
"""The quantiser that codes a whole checkpoint by itself."""


@dataclass(frozen=True)
class Coded:
    """What a quantiser made of the modules."""

    entries: Mapping[str, Entry]
    """The coded tensors by name."""
    facts: Mapping[str, dict[str, Any]]
    """Bits, errors and calibration of each module; under ``claimed`` what only the quantiser's library says."""


@dataclass(frozen=True)
class Inputs:
    """What a bake starts from, resolved from headers."""

    recipe: Bake
    base: Pack
    weights: Mapping[str, Entry]
    """Tensors of the source."""
    targets: tuple[Target, ...]
    plan: merge.Merge

    @cached_property
    def names(self) -> dict[str, Target]:
        """The targets by module."""
        return {target.name: target for target in self.targets}

    def weight(self, target: Target) -> NDArray[np.floating]:
        """The module's plain weight ``[in, out]``."""
        whole = self.weights[target.weight].read()
        rows = len(whole) // target.slices
        return whole[target.slice * rows : (target.slice + 1) * rows].T

    def size(self, target: Target) -> int:
        """Number of weights."""
        shape = self.weights[target.weight].shape
        return shape[0] * shape[1] // target.slices


def searched(job: Job, given: Inputs, folder: Path) -> Coded:
    """Module by module, on second moments of our own calibration."""
    hessians = calibration.moments(job, given.recipe, {target.name for target in given.targets})
    layers = _layers(folder, given)
    coding = Coding(Codebook(given.recipe.codebook), given.recipe.seed, QUANTISERS[given.recipe.quantiser])
    bake_layers.bake_layers(layers, coding, hessians, job.note)
    entries = {entry.name: entry for layer in layers for entry in read_header(layer.file).entries}
    facts = bake_layers.errors_of(layers)
    for name, told in facts.items():
        told["calibrated"] = name in hessians
        if given.recipe.quantiser != NATIVE:
            told["claimed"] = {"output_error": told.pop("output_error")}
    return Coded(entries, facts)


def converted(job: Job, given: Inputs) -> Coded:
    """By exllamav3's conversion of the whole source, on our calibration text or else on the library's own."""
    recipe = given.recipe
    source = job.root / recipe.source if recipe.source else job.standing
    layers = own_layers(json.loads((source / CONFIG).read_bytes()))
    if layers is None:
        raise InputError("the configuration does not say how many layers there are", where=str(source / CONFIG))
    sliced = {target.weight.removesuffix(".weight") for target in given.targets if target.slices > 1}
    kept = set(exllamav3_conversion.linears(given.weights, recipe.prefix, layers)) - sliced
    bits = dict.fromkeys(sorted(kept), exllamav3_conversion.PLAIN)
    bits |= {target.name: target.bits for target in given.targets}
    conversion = Conversion(source, job.work / "conversion", bits, recipe.codebook)
    if recipe.calibration is not None:
        rows = calibration.rows(job, recipe.calibration, source)
        file = job.work / "calibration.safetensors"
        pack_write.write_shard(file, {"input_ids": rows})
        conversion = replace(conversion, rows=len(rows), columns=rows.shape[1], calibration=file)
    entries = exllamav3_conversion.convert(conversion, job.note)
    proxies = exllamav3_conversion.proxy_errors(conversion)
    facts = {}
    for target in given.targets:
        tensors = {name: entry.read() for name, entry in entries.items() if name.rpartition(".")[0] == target.name}
        error = relative_error(pack_format.from_tensors(target.name, tensors), given.weight(target))
        claimed = {"output_error": proxies.get(target.name), "calibrated": target.name in proxies}
        facts[target.name] = {"bits": target.bits, "relative_error": round(error, 6), "claimed": claimed}
    return Coded(entries, facts)


def _layers(folder: Path, given: Inputs) -> list[Layer]:
    by_layer: dict[str, list[Module]] = {}
    for target in given.targets:
        module = Module(target.name, target.bits, partial(given.weight, target))
        by_layer.setdefault(layer_of(target.name), []).append(module)
    return [Layer(folder / f"{name}.safetensors", modules) for name, modules in by_layer.items()]


def relative_error(
    coded: linear.Linear, weight: NDArray[np.floating], hessian: NDArray[np.floating] | None = None
) -> float:
    """Squared distance of a coded module from its plain weight ``[in, out]``, relative to the weight's square.

    With the Hessian of its inputs ``[in, in]``, the same of its outputs.
    """
    plain = weight.astype(np.float64)
    return quantise.relative(linear.dequantise(coded) - plain, plain, hessian)
