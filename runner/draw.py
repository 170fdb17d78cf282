"""Everything random of a run, derived from one secret seed and the sealed plan.

``HMAC-SHA256(seed, plan digest ‖ 0x00 ‖ label ‖ 0x00 ‖ block counter)`` gives a byte stream a label. The seed's
SHA-256 is in the plan before the run and the seed itself in the report after it, so a reader derives every prompt,
needle, document order, arm order and perturbation again. Labels make streams independent: what one window draws never
depends on what another drew before it.
"""

from __future__ import annotations

import hmac
import itertools
import secrets
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import TypeVar

from runner.digest import sha256_bytes
from runner.model.base import Arm

Arms = tuple[Arm, Arm, Arm, Arm]
ABBA: Arms = ("incumbent", "candidate", "candidate", "incumbent")
BAAB: Arms = ("candidate", "incumbent", "incumbent", "candidate")
SEED_BYTES = 32
_FOUR_WORDS = Struct(">4Q")
"""A digest as 64-bit words."""
_WORDS = 1 << 64
"""So many words there are."""
_T = TypeVar("_T")


def new_seed() -> bytes:
    """256 bits from the operating system."""
    return secrets.token_bytes(SEED_BYTES)


def commitment(seed: bytes) -> str:
    """What is published before the run: lower-case hex SHA-256 of the seed."""
    return sha256_bytes(seed)


class Draw:
    """Pure: the same seed, plan digest and label give the same answer on any machine on any day."""

    def __init__(self, seed: bytes, plan_digest: str) -> None:
        if len(seed) != SEED_BYTES:
            raise ValueError(f"a seed has {SEED_BYTES} bytes, not {len(seed)}")
        self._seed, self._plan = seed, plan_digest.encode()
        self.plan = plan_digest
        self._positions: dict[tuple[str, int, int], tuple[int, ...]] = {}

    def _words(self, label: str) -> Iterator[int]:
        """Independent 64-bit words of one label, without end."""
        start = b"\0".join((self._plan, label.encode(), b""))
        for block in itertools.count():
            yield from _FOUR_WORDS.unpack(hmac.digest(self._seed, start + b"%d" % block, "sha256"))

    @staticmethod
    def _below(words: Iterator[int], bound: int) -> int:
        """Uniform in [0, bound): words past the last whole multiple of ``bound`` are dropped."""
        while (word := next(words)) > _WORDS - bound and word >= _WORDS - _WORDS % bound:
            pass  # nearly no word is so large that a division has to tell
        return word % bound

    def integer(self, label: str, below: int) -> int:
        """Uniform in [0, below)."""
        return self.integers(label, 1, below)[0]

    def integers(self, label: str, count: int, below: int) -> tuple[int, ...]:
        """``count`` independent integers, each uniform in [0, below). Raises ValueError unless 0 < below ≤ 2⁶⁴."""
        if not 0 < below <= 1 << 64:
            raise ValueError(f"bound {below} is not in 1..2^64")
        words = self._words(label)
        return tuple(self._below(words, below) for _ in range(count))

    def permutation(self, label: str, count: int) -> list[int]:
        """A uniform order of 0..count−1 (Fisher–Yates)."""
        order, words = list(range(count)), self._words(label)
        for last in range(count - 1, 0, -1):
            other = self._below(words, last + 1)
            order[last], order[other] = order[other], order[last]
        return order

    def sample(self, label: str, items: Sequence[_T], count: int) -> tuple[_T, ...]:
        """``count`` different items in drawn order. Raises ValueError where there are too few."""
        if count > len(items):
            raise ValueError(f"{label}: {count} wanted of {len(items)}")
        return tuple(items[index] for index in self.permutation(label, len(items))[:count])

    def positions(self, document: str, positions: int, count: int) -> tuple[int, ...]:
        """Which of a document's positions are kept with the report, in order; all of them where there are too few."""
        asked = document, positions, count
        if asked not in self._positions:  # each document is read in several windows
            drawn = self.permutation(f"positions/{document}", positions)[: max(count, 0)]
            self._positions[asked] = tuple(sorted(drawn))
        return self._positions[asked]

    def choice(self, label: str, items: Sequence[_T]) -> _T:
        """One item."""
        return items[self.integer(label, len(items))]

    def arms(self, quad: str) -> Arms:
        """Arm order of the four blocks of one quad: ABBA or BAAB."""
        return (ABBA, BAAB)[self.integer(f"arms/{quad}", 2)]


__all__ = ["ABBA", "BAAB", "SEED_BYTES", "Arms", "Draw", "commitment", "new_seed"]
