"""Quantise a linear layer to EXL3.

Codebooks are made for weights that look normally distributed, independent and of one size. A matrix is brought there by
dividing out the size of every output and input channel, flipping random signs and rotating both sides (the QuIP#
incoherence argument, arXiv 2402.04396). What was divided out becomes ``svh`` and ``suh``. Then every tile is coded by
the trellis search of QTIP (arXiv 2406.11235).

With a Hessian of the layer's inputs, the errors of rows already coded are fed into the rows still to come so that
errors the inputs cannot see are preferred (LDLQ, arXiv 2307.13304, in blocks of one tile).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from carve_kernels.exl3 import codebook, hadamard, linear, native, tile, trellis
from carve_kernels.exl3.codebook import Codebook
from carve_kernels.exl3.linear import Linear
from runner.errors import InputError

Matrix = NDArray[np.float64]

_SPREAD = {1: 1.10, 2: 1.00, 3: 0.95, 4: 0.90, 5: 0.85, 6: 0.80, 7: 0.77, 8: 0.75}
"""By K: standard deviation of what is coded over that of the codebook, where the error on normal weights is least."""

_DAMPING = 0.025
"""Share of a Hessian's mean diagonal that is added to its diagonal, against directions that calibration never saw."""


@dataclass(frozen=True)
class Quantised:
    """A coded layer and what coding cost."""

    linear: Linear
    relative_error: float
    """Squared error of the plain weights over their squared size."""
    output_error: float | None
    """The same of the layer's output on the calibration inputs; None without a Hessian."""


def quantise_linear(
    weight: NDArray[np.floating], bits: int, book: Codebook, seed: int, hessian: NDArray[np.floating] | None = None
) -> Quantised:
    """Code ``weight [in, out]`` (multiples of 128) at ``bits`` a weight.

    ``hessian [in, in]`` is the mean of ``x^T x`` over calibration inputs. The same arguments give the same bits.
    InputError for shapes that do not fit and values that are not finite.
    """
    plain = weight.astype(np.float64)
    if plain.ndim != 2 or plain.shape[0] % hadamard.BLOCK or plain.shape[1] % hadamard.BLOCK:
        raise InputError("not a matrix of Hadamard blocks", expected="multiples of 128", found=str(weight.shape))
    if not np.isfinite(plain).all():
        raise InputError("weights cannot be quantised", expected="finite numbers", found="infinity or NaN")
    if hessian is not None and hessian.shape != (len(plain), len(plain)):
        raise InputError("Hessian does not fit", expected=f"{(len(plain),) * 2}", found=str(hessian.shape))

    rotated, suh, svh = _regularise(plain, bits, book, np.random.default_rng(seed))
    if hessian is None:
        states = _search(rotated, bits, book)
    else:
        states = _search_with_feedback(rotated, bits, book, _rotate_hessian(hessian.astype(np.float64), suh))
    coded = Linear(trellis.pack(states, bits), suh, svh, book)
    error = linear.dequantise(coded) - plain
    return Quantised(coded, relative(error, plain, None), None if hessian is None else relative(error, plain, hessian))


def _regularise(
    plain: Matrix, bits: int, book: Codebook, rng: np.random.Generator
) -> tuple[Matrix, NDArray[np.float16], NDArray[np.float16]]:
    """The rotated matrix at the codebook's size, and the half-precision ``suh`` and ``svh`` that undo it."""
    signs_in, signs_out = (rng.choice([-1.0, 1.0], size) for size in plain.shape)
    outputs = _sizes(plain, axis=0)
    svh = (signs_out * outputs / max(outputs.mean(), np.finfo(np.float64).tiny)).astype(np.float16)
    rotated = hadamard.transform(_divide(plain, svh[np.newaxis, :]))
    inputs = _sizes(rotated, axis=1)
    aim = _SPREAD[bits] * codebook.table(book).astype(np.float64).std()
    suh = (signs_in * inputs / aim).astype(np.float16)
    return hadamard.transform(_divide(rotated, suh[:, np.newaxis]).T).T, suh, svh


def _sizes(matrix: Matrix, axis: int) -> NDArray[np.float64]:
    sizes: NDArray[np.float64] = np.sqrt((matrix**2).mean(axis=axis))
    return sizes


def _divide(matrix: Matrix, scale: NDArray[np.float16]) -> Matrix:
    """Divide by a scale as it will be stored; a channel whose scale is zero stays zero."""
    exact = scale.astype(np.float64)
    return np.divide(matrix, exact, out=np.zeros_like(matrix), where=exact != 0)


def _search(rotated: Matrix, bits: int, book: Codebook) -> NDArray[np.uint16]:
    tiles = tile.from_matrix(rotated)
    return native.search(tiles.reshape(-1, trellis.TILE_WEIGHTS).astype(np.float32), bits, book).reshape(tiles.shape)


def _search_with_feedback(rotated: Matrix, bits: int, book: Codebook, hessian: Matrix) -> NDArray[np.uint16]:
    """Code rows of tiles from the last to the first; each makes up for the errors of those already coded."""
    feedback = _block_ldl(hessian)
    error = np.zeros_like(rotated)
    states = np.empty((len(rotated) // tile.SIDE, rotated.shape[1] // tile.SIDE, trellis.TILE_WEIGHTS), dtype=np.uint16)
    for row in reversed(range(len(states))):
        here, after = slice(row * tile.SIDE, (row + 1) * tile.SIDE), slice((row + 1) * tile.SIDE, None)
        wanted = rotated[here] + feedback[after, here].T @ error[after]
        states[row] = _search(wanted, bits, book)[0]
        coded = tile.to_matrix(codebook.table(book)[states[row : row + 1]]).astype(np.float64)
        error[here] = rotated[here] - coded
    return states


def _rotate_hessian(hessian: Matrix, suh: NDArray[np.float16]) -> Matrix:
    """The Hessian of the inputs as the coded matrix sees them: scaled by ``suh``, rotated, damped."""
    scale = suh.astype(np.float64)
    rotated = hadamard.transform(hadamard.transform(hessian * np.outer(scale, scale)).T)
    damping = _DAMPING * float(np.diag(rotated).mean()) + float(np.finfo(np.float64).tiny)
    damped: Matrix = rotated + damping * np.eye(len(rotated))
    return damped


def _block_ldl(hessian: Matrix) -> Matrix:
    """The unit block-lower-triangular factor L of ``H = L D L^T``, in blocks of one tile's height."""
    factor: Matrix = np.linalg.cholesky(hessian).astype(np.float64)
    for start in range(0, len(factor), tile.SIDE):
        block = slice(start, start + tile.SIDE)
        factor[:, block] = factor[:, block] @ np.linalg.inv(factor[block, block])
    return factor


def relative(error: Matrix, plain: Matrix, hessian: NDArray[np.floating] | None) -> float:
    """Squared size of ``error`` over that of ``plain`` (both ``[in, out]``), as inputs with this Hessian see them."""
    size = _energy(plain, hessian)
    return _energy(error, hessian) / size if size else 0.0


def _energy(matrix: Matrix, hessian: NDArray[np.floating] | None) -> float:
    seen = matrix if hessian is None else hessian.astype(np.float64) @ matrix
    return float((matrix * seen).sum())
