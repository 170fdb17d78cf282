"""The toy distribution of the fake engine: a function of the context and of each rank's variant, nothing else.

Tokens are bytes (0..255) and 256 for the end of a text. Logits are a table of the last token, plus each rank's share of
a table of the token before it, plus a boost for whatever followed the same bytes earlier in the context: enough to find
a needle, to prefer text over noise and to react to a broken kernel. No weights are served and no speed is meant.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

VOCABULARY = 257
END = 256
EXPERTS = 16
_END_EVERY = 64
"""A context length at which the toy likes to end its text."""
_FINISH, _RECALL = 40.0, 60.0
"""Boosts of the end and of what followed the same bytes long ago: recalling a needle goes before ending."""


@dataclass(frozen=True)
class Behaviour:
    """What a variant library of the fake seat does."""

    step_ms: float = 4.0
    """Duration of a decode step."""
    shift: float = 0.0
    """How far this variant moves the logits, in nats."""
    zero: bool = False
    """The rank's own share of the logits is lost."""
    declines: str = ""
    """Typed reason of a decline, empty for none."""
    declines_up_to: int = 1 << 30
    """Rows up to which it declines."""
    idle_after: int = 1 << 30
    """Steps of one row in a run after which the rank's own share of the logits is lost."""
    only_rank: int | None = None
    prewarms: bool = False
    """It runs once on every layer while the engine starts."""
    slow_rank: int | None = None
    """The one rank whose kernels take a fifth longer."""


BEHAVIOURS: dict[str, Behaviour] = {
    "incumbent": Behaviour(),
    "incumbent-watermark": Behaviour(shift=0.05),
    "lna2": Behaviour(step_ms=2.5, shift=1e-6),
    "lna2-watermark": Behaviour(step_ms=2.5, shift=0.05),
    "half-k": Behaviour(step_ms=2.5, shift=1.5),
    "idle-when-timed": Behaviour(step_ms=2.5, shift=1e-6, idle_after=4),
    "silent-fallback": Behaviour(declines="other"),
    "prefill-only": Behaviour(declines="rows-below-limit", declines_up_to=64),
    "one-rank": Behaviour(step_ms=2.5, shift=1e-6, declines="other", only_rank=1),
    "prewarm-only": Behaviour(prewarms=True, declines="not-ready"),
    "slow-rank": Behaviour(step_ms=2.5, shift=1e-6, slow_rank=1),
    "knock-out-decline": Behaviour(declines="other"),
    "knock-out-zero": Behaviour(zero=True),
}
"""By library file stem, so that a knock-out library under the candidate's name behaves as a knock-out."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class RankState:
    """What one rank contributes at this step."""

    shift: float = 0.0
    zero: bool = False
    expert: int | None = None
    factor: float = 1.0


@dataclass
class Context:
    """One sequence and where its 4- and 8-byte runs were last seen."""

    tokens: list[int]
    seen: dict[tuple[int, ...], int] = field(default_factory=dict)
    indexed: int = 0

    def followers(self, end: int) -> list[tuple[int, float]]:
        """(token, boost) of what followed the same run earlier, for the context ``tokens[:end]``.

        Must be called with rising ``end``: runs are indexed up to one before it.
        """
        while self.indexed < end:
            self.indexed += 1
            for length in (4, 8):
                if self.indexed - 1 >= length:
                    self.seen[tuple(self.tokens[self.indexed - 1 - length : self.indexed - 1])] = self.indexed - 1
        found = []
        for length, boost in ((4, 6.0), (8, 14.0)):
            if end >= length and (at := self.seen.get(tuple(self.tokens[end - length : end]))) is not None:
                recalled = length == 8 and end - at >= _END_EVERY
                found.append((self.tokens[at], _RECALL if recalled else boost))
        return found


class Model:
    """Tables drawn once from a fixed seed."""

    def __init__(self, ranks: int) -> None:
        generator = np.random.default_rng(20)
        shape = (VOCABULARY, VOCABULARY)
        self.first: Floats = generator.normal(0.0, 1.5, shape)
        self.second: Floats = generator.normal(0.0, 1.0 / ranks, (ranks, *shape))
        self.marks: Floats = generator.normal(0.0, 1.0, (ranks, *shape))
        printable = np.full(VOCABULARY, -4.0)
        printable[32:127] = 0.0
        printable[10] = 0.0
        printable[128:192] = -1.0
        self.first += printable

    def logits(self, context: Context, start: int, end: int, ranks: Sequence[RankState]) -> Floats:
        """Logits ``[end - start, VOCABULARY]`` of the tokens that follow ``tokens[:start] .. tokens[:end - 1]``."""
        tokens = context.tokens
        last = np.array([tokens[at - 1] for at in range(start, end)])
        before = np.array([tokens[at - 2] if at > 1 else END for at in range(start, end)])
        logits: Floats = self.first[last].copy()
        for rank, state in enumerate(ranks):
            share = self.second[rank][before]
            if state.expert is not None:
                share = np.where((before % EXPERTS == state.expert)[:, None], share * state.factor, share)
            if not state.zero:
                logits += share
            if state.shift:
                logits += state.shift * self.marks[rank][last]
        for row, at in enumerate(range(start, end)):
            for token, boost in context.followers(at):
                logits[row, token] += boost
            if at % _END_EVERY == 0:
                logits[row, END] += _FINISH
        return logits


def log_softmax(logits: Floats) -> Floats:
    """Row-wise, stable."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    normalised: Floats = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return normalised
