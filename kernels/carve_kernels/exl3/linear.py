"""An EXL3 linear layer: what its tensors mean together.

``y = ((x * suh) H) W H * svh`` with ``W [in, out]`` the decoded tiles and ``H`` the blockwise Hadamard transform. Signs
and scales of inputs lie in ``suh``, those of outputs in ``svh``. Source: campaign section 5.1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from carve_kernels.exl3 import codebook, hadamard, tile, trellis
from carve_kernels.exl3.codebook import Codebook
from runner.errors import InputError


@dataclass(frozen=True)
class Linear:
    """The tensors of one layer; InputError where shapes or types do not fit each other."""

    trellis: NDArray[np.uint16]
    """``[in/16, out/16, 16 * K]``"""
    suh: NDArray[np.float16]
    """``[in]``"""
    svh: NDArray[np.float16]
    """``[out]``"""
    codebook: Codebook

    def __post_init__(self) -> None:
        for name, array, dtype, dimensions in (
            ("trellis", self.trellis, np.uint16, 3),
            ("suh", self.suh, np.float16, 1),
            ("svh", self.svh, np.float16, 1),
        ):
            if array.dtype != dtype or array.ndim != dimensions:
                raise InputError(
                    f"{name} has the wrong type",
                    expected=f"{np.dtype(dtype)}, {dimensions} dimensions",
                    found=f"{array.dtype}, shape {array.shape}",
                )
        trellis.bits_of(self.trellis)
        tiled = (self.trellis.shape[0] * tile.SIDE, self.trellis.shape[1] * tile.SIDE)
        if tiled != (self.in_features, self.out_features):
            raise InputError(
                "trellis, suh and svh disagree",
                expected=f"{tiled[0]} inputs and {tiled[1]} outputs, as the trellis has",
                found=f"suh {self.in_features}, svh {self.out_features}",
            )
        if self.in_features % hadamard.BLOCK or self.out_features % hadamard.BLOCK:
            raise InputError("features have no Hadamard blocks", expected="multiples of 128", found=str(tiled))

    @property
    def in_features(self) -> int:
        return self.suh.size

    @property
    def out_features(self) -> int:
        return self.svh.size

    @property
    def bits(self) -> int:
        return trellis.bits_of(self.trellis)


def reconstruct(coded: NDArray[np.uint16], book: Codebook) -> NDArray[np.float16]:
    """The coded matrix ``W [in, out]`` of a trellis ``[in/16, out/16, 16 * K]``, still in the rotated basis."""
    return tile.to_matrix(codebook.table(book)[trellis.windows(coded)])


def dequantise(linear: Linear) -> NDArray[np.float32]:
    """The plain weight ``[in, out]`` in float32, so that ``y = x @ dequantise(linear)``."""
    rotated = reconstruct(linear.trellis, linear.codebook).astype(np.float32)
    inputs = hadamard.transform(rotated.T).T * linear.suh.astype(np.float32)[:, np.newaxis]
    return hadamard.transform(inputs) * linear.svh.astype(np.float32)


def forward(x: NDArray[np.floating], linear: Linear) -> NDArray[np.float32]:
    """``x [rows, in]`` to ``[rows, out]``, all in float32 (a GPU kernel rounds the rotated input to half)."""
    rotated = hadamard.transform(x.astype(np.float32) * linear.suh.astype(np.float32))
    product = rotated @ reconstruct(linear.trellis, linear.codebook).astype(np.float32)
    return hadamard.transform(product) * linear.svh.astype(np.float32)
