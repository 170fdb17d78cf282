"""Our own forward with another engine's choices of experts, where a choice is a tie that rounding decides.

A router takes the experts of the highest scores. Where the last that it takes and the first that it leaves have nearly
the same score, float16 decides between them by chance, and the logits of that row, and of the rows that attend to it,
jump far beyond what rounding does to sums. Two engines that take different sides of a tie are both right. So the
distance of another engine is measured from our own forward on its side of every tie, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from recipe.exllamav3_host import distances
from recipe.mini.model import Experts

TIMES = 2
"""A choice is a tie where its margin is at most this many times what float16 moves a margin of our own forward: the
other engine rounds at other places than we do, and is allowed as many times our noise elsewhere."""


@dataclass(frozen=True)
class Followed:
    """The other engine beside our forward on its side of every tie. Arrays are ``[documents, length]``."""

    distance: NDArray[np.floating]
    """Of its rows of logits from ours, as :func:`recipe.exllamav3_host.distances`."""
    float16: NDArray[np.floating]
    """Of our own rows with products in float16, the choices being those of float32."""
    tie: float
    """Margins of corrected scores up to this are ties."""
    choices: int
    """All choices: one a token and layer of experts."""
    ties: tuple[int, ...]
    """Choices of each document that are ties."""
    others: tuple[tuple[tuple[int, int, float], ...], ...]
    """Of each document the ties where it took the other side: layer of experts, position, margin."""


class _Chooser:
    """The highest scores, or what is pinned; a ``swapped`` token takes the first expert that was left for its last."""

    def __init__(self, top: int) -> None:
        self.top = top
        self.swapped: set[int] = set()
        self.pinned: Tensor | None = None
        """Expert numbers ``[tokens, top + 1]`` to take, the last being the one that is left."""
        self.ranked = torch.empty(0)
        self.margins = torch.empty(0)
        """Of the last forward, ``[tokens]``."""

    def __call__(self, ranked: Tensor) -> Tensor:
        best = ranked.topk(self.top + 1, dim=1).indices if self.pinned is None else self.pinned
        last, left = (ranked.gather(1, best[:, place : place + 1])[:, 0] for place in (self.top - 1, self.top))
        self.ranked, self.margins = best, last - left
        chosen = best[:, : self.top].clone()
        rows = sorted(self.swapped)
        chosen[rows, -1] = best[rows, self.top]
        return chosen


@contextmanager
def _choosers(model: Any) -> Iterator[list[_Chooser]]:
    """One for each layer of experts, in their order; the draft layer gives no logits."""
    layers = [layer.mlp for layer in model.layers if isinstance(layer.mlp, Experts)]
    found = []
    for experts in layers:
        experts.chooser = _Chooser(experts.top)
        found.append(experts.chooser)
    try:
        yield found
    finally:
        for experts in layers:
            experts.chooser = None


def logits_of(model: Any, tokens: NDArray[np.integer], *, half: bool = False) -> NDArray[np.float32]:
    """Logits ``[documents, length, vocabulary]``; with ``half`` every matrix product is taken in float16."""
    model.eval()
    with torch.no_grad(), torch.autocast("cpu", torch.float16, enabled=half):
        found: NDArray[np.float32] = model.lm_head(model(torch.from_numpy(tokens.astype(np.int64)))).float().numpy()
    return found


def follow(model: Any, tokens: NDArray[np.integer], theirs: NDArray[np.floating]) -> Followed:
    """``theirs`` ``[documents, length, vocabulary]`` beside our forward of ``tokens`` ``[documents, length]``.

    A tie is swapped where that brings the row of its own token nearer, in the order in which a causal model computes:
    a later choice moves no earlier row.
    """
    with _choosers(model) as choosers:
        ours = logits_of(model, tokens)
        before = [chooser.margins for chooser in choosers]
        for chooser in choosers:
            chooser.pinned = chooser.ranked
        noise = distances(logits_of(model, tokens, half=True), ours)
        moved = [(chooser.margins - margin).abs().max() for chooser, margin in zip(choosers, before, strict=True)]
        for chooser in choosers:
            chooser.pinned = None
        tie = TIMES * max(map(float, moved), default=0.0)
        told = [_one(model, choosers, row, theirs[number], tie) for number, row in enumerate(tokens)]
    nearest, ties, others = zip(*told, strict=True)
    return Followed(np.stack(nearest), noise, tie, len(choosers) * tokens.size, ties, others)


def _one(
    model: Any, choosers: list[_Chooser], tokens: NDArray[np.integer], theirs: NDArray[np.floating], tie: float
) -> tuple[NDArray[np.floating], int, tuple[tuple[int, int, float], ...]]:
    """One document: distances ``[length]``, number of ties, and those on the other side."""

    def distance() -> NDArray[np.floating]:
        return distances(theirs[None], logits_of(model, tokens[None])).reshape(-1)

    for chooser in choosers:
        chooser.swapped = set()
    nearest = distance()
    margins = [chooser.margins for chooser in choosers]
    ties, others = 0, []
    for position, (layer, chooser) in product(range(len(tokens)), enumerate(choosers)):
        margin = float(margins[layer][position])
        if margin > tie:
            continue
        ties += 1
        chooser.swapped.add(position)
        now = distance()
        if now[position] < nearest[position]:
            nearest, margins = now, [each.margins for each in choosers]
            others.append((layer, position, margin))
        else:
            chooser.swapped.discard(position)
    return nearest, ties, tuple(others)
