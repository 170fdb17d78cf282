"""Names and types of EXL3 tensors in a safetensors file.

A module ``m`` is stored as

    ``m.trellis``  int16 ``[in/16, out/16, 16 * K]`` (bits of uint16; K is known from this shape alone)
    ``m.suh``      float16 ``[in]``
    ``m.svh``      float16 ``[out]``
    ``m.mcg`` or ``m.mul1``  one int32: the codebook's multiplier, its mere presence names the codebook

Source: campaign section 5.1; the writer of exllamav3 1.4.5.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carve_kernels.exl3.codebook import MCG_MULTIPLIER, MUL1_MULTIPLIER, Codebook
from carve_kernels.exl3.linear import Linear
from runner.errors import InputError

MARKERS = {
    Codebook.MCG: int(np.uint32(MCG_MULTIPLIER).astype(np.int32)),
    Codebook.MUL1: int(np.uint32(MUL1_MULTIPLIER).astype(np.int32)),
}
"""The value of a codebook's marker tensor; the default codebook has none."""

_REQUIRED = ("trellis", "suh", "svh")
PARTS = (*_REQUIRED, *(book.value for book in MARKERS))
"""Every part that a module can have."""


def modules(names: Iterable[str]) -> list[str]:
    """The EXL3 modules among tensor names, sorted."""
    return sorted(name.removesuffix(".trellis") for name in names if name.endswith(".trellis"))


def tensor_names(module: str, codebook: Codebook) -> list[str]:
    """Every tensor that a module of this codebook consists of."""
    marker = [codebook.value] if codebook in MARKERS else []
    return [f"{module}.{part}" for part in (*_REQUIRED, *marker)]


def codebook_of(module: str, names: Container[str]) -> Codebook:
    """The codebook that the marker among ``names`` tells; InputError where two markers stand.

    It is asked for every module of a pack, so ``names`` is a mapping or a set, in which a look costs the same for any
    number of tensors.
    """
    found = [book for book in MARKERS if f"{module}.{book.value}" in names]
    if len(found) > 1:
        raise InputError("module has two codebooks", where=module, expected="mcg or mul1", found="both")
    return found[0] if found else Codebook.DEFAULT


def to_tensors(module: str, linear: Linear) -> dict[str, NDArray[Any]]:
    """The tensors of a layer under their names, in the types of the file."""
    tensors: dict[str, NDArray[Any]] = {
        f"{module}.trellis": linear.trellis.view(np.int16),
        f"{module}.suh": linear.suh,
        f"{module}.svh": linear.svh,
    }
    if linear.codebook in MARKERS:
        tensors[f"{module}.{linear.codebook.value}"] = np.array(MARKERS[linear.codebook], dtype=np.int32)
    return tensors


def from_tensors(module: str, tensors: Mapping[str, NDArray[Any]]) -> Linear:
    """The layer called ``module``; InputError for missing tensors, wrong types and an unknown marker value."""
    missing = [f"{module}.{part}" for part in _REQUIRED if f"{module}.{part}" not in tensors]
    if missing:
        raise InputError("module is incomplete", where=module, expected=", ".join(_REQUIRED), found=f"no {missing}")
    codebook = codebook_of(module, tensors)
    if codebook in MARKERS:
        marker = tensors[f"{module}.{codebook.value}"]
        if marker.dtype != np.int32 or marker.size != 1 or int(marker.reshape(-1)[0]) != MARKERS[codebook]:
            raise InputError(
                "unknown codebook marker",
                where=f"{module}.{codebook.value}",
                expected=f"one int32 of value {MARKERS[codebook]}",
                found=f"{marker.dtype} {marker.tolist()}",
            )
    trellis, suh, svh = (tensors[f"{module}.{part}"] for part in _REQUIRED)
    if trellis.dtype != np.int16:
        raise InputError("trellis has the wrong type", where=module, expected="int16", found=str(trellis.dtype))
    try:
        return Linear(trellis.view(np.uint16), suh, svh, codebook)
    except InputError as error:
        raise InputError(
            error.what, where=module, expected=error.expected, found=error.found, next_step=error.next_step
        ) from error
