"""Made-up layers, routes and inputs for the desk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from carve_kernels.exl3.codebook import Codebook
from carve_kernels.exl3.linear import Linear
from runner.errors import InputError

Route = Literal["unique", "hot", "zipf", "boundary", "duplicates", "negative"]
ROUTES: tuple[Route, ...] = ("unique", "hot", "zipf", "boundary", "duplicates", "negative")
Inputs = Literal["zero", "gaussian", "large", "clamp"]
INPUTS: tuple[Inputs, ...] = ("gaussian", "zero", "large", "clamp")

Expert = tuple[Linear, Linear, Linear]
"""gate, up, down."""


@dataclass(frozen=True)
class Shape:
    """One rank's share of a routed layer."""

    hidden: int
    intermediate: int
    experts: int
    topk: int

    @property
    def weights_per_expert(self) -> int:
        return 3 * self.hidden * self.intermediate


def linear(
    draw: np.random.Generator, in_features: int, out_features: int, bits: int, book: Codebook, *, scale: float = 1.0
) -> Linear:
    """Random trellis, signs and scales such that unit-variance inputs give outputs of about ``scale``."""
    words = draw.integers(0, 1 << 16, (in_features // 16, out_features // 16, 16 * bits), dtype=np.uint16)
    # A codebook's weights have a standard deviation of about 1.24; the Hadamard transforms keep norms.
    level = scale / (1.24 * np.sqrt(in_features))
    suh = draw.choice([-1.0, 1.0], in_features) * draw.uniform(0.5, 1.5, in_features)
    svh = draw.choice([-1.0, 1.0], out_features) * draw.uniform(0.5, 1.5, out_features) * level
    return Linear(words, suh.astype(np.float16), svh.astype(np.float16), book)


def experts(draw: np.random.Generator, shape: Shape, bits: int, book: Codebook) -> list[Expert]:
    """Experts whose gate and up outputs are of the order of 2, so that silu is curved where it is used."""
    return [
        (
            linear(draw, shape.hidden, shape.intermediate, bits, book, scale=2.0),
            linear(draw, shape.hidden, shape.intermediate, bits, book, scale=2.0),
            linear(draw, shape.intermediate, shape.hidden, bits, book),
        )
        for _ in range(shape.experts)
    ]


def routes(draw: np.random.Generator, kind: Route, shape: Shape, rows: int) -> NDArray[np.int32]:
    """Expert ids ``[rows, topk]``.

    ``unique`` spreads over as many experts as there are, ``hot`` sends every row to the same ones, ``zipf`` prefers low
    ids, ``boundary`` uses the first and last expert in every row, ``duplicates`` names one expert twice in a row,
    ``negative`` leaves about half of the slots (and all of the first row) to other ranks.
    """
    count, topk = shape.experts, shape.topk
    every = np.arange(rows * topk, dtype=np.int32).reshape(rows, topk)
    if kind == "unique":
        ids = (every + int(draw.integers(count))) % count
    elif kind == "hot":
        ids = np.tile(draw.permutation(count)[:topk], (rows, 1))
    elif kind == "zipf":
        weight = 1.0 / np.arange(1, count + 1)
        ids = np.stack([draw.choice(count, topk, replace=False, p=weight / weight.sum()) for _ in range(rows)])
    elif kind in ("boundary", "duplicates"):
        ids = np.stack([1 + draw.permutation(count - 2)[:topk] for _ in range(rows)])
        ids[:, 0] = 0
        ids[:, -1] = count - 1 if kind == "boundary" else ids[:, 0]
    elif kind == "negative":
        ids = np.where(draw.random((rows, topk)) < 0.5, -1, (every + 1) % count)
        ids[0] = -1
    else:
        raise InputError("no such route", expected=", ".join(ROUTES), found=kind)
    return np.ascontiguousarray(ids, dtype=np.int32)


def inputs(draw: np.random.Generator, kind: Inputs, shape: Shape, rows: int) -> NDArray[np.float32]:
    """Activations ``[rows, hidden]``: zeros, unit variance, eight times that, or so that gate and up pass the limit."""
    scale = {"zero": 0.0, "gaussian": 1.0, "large": 8.0, "clamp": 4.0}[kind]
    return (scale * draw.standard_normal((rows, shape.hidden))).astype(np.float32)
