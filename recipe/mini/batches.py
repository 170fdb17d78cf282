"""Training batches: windows of plain text, a third of them turned into needle documents. NumPy only."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recipe.mini.needles import DIGITS, LANGUAGES

ANSWER_WEIGHT = 5.0
Tokens = NDArray[np.uint16]


@dataclass(frozen=True)
class NeedleForm:
    """A needle form in tokens: what comes before and after the digits in the statement, and the question."""

    before: Tokens
    after: Tokens
    question: Tokens

    @property
    def statement_length(self) -> int:
        return len(self.before) + DIGITS + len(self.after)

    @property
    def question_length(self) -> int:
        """Question and answer."""
        return len(self.question) + DIGITS


@dataclass(frozen=True)
class Batch:
    """``tokens`` int64 [rows, length]; ``weights`` float32 [rows, length], the loss weight of predicting each token."""

    tokens: NDArray[np.int64]
    weights: NDArray[np.float32]


class Batches:
    """Draws batches for ever; the same seed and the same calls give the same batches.

    ``text`` holds one token stream a language, ``share`` the probability of each, ``digit`` the ids of "0".."9".
    """

    def __init__(
        self,
        text: dict[str, Tokens],
        forms: dict[str, NeedleForm],
        digit: Tokens,
        *,
        share: dict[str, float],
        needles: float = 0.35,
        seed: int = 0,
    ) -> None:
        self.text, self.forms, self.digit, self.needles = text, forms, digit, needles
        self.share = np.array([share[language] for language in LANGUAGES])
        self.random = np.random.default_rng(seed)

    def draw(self, rows: int, length: int) -> Batch:
        """A batch of ``rows`` windows of ``length`` tokens."""
        tokens = np.empty((rows, length), np.int64)
        weights = np.ones((rows, length), np.float32)
        for row, index in enumerate(self.random.choice(len(LANGUAGES), size=rows, p=self.share)):
            stream = self.text[LANGUAGES[index]]
            start = self.random.integers(0, len(stream) - length)
            tokens[row] = stream[start : start + length]
        for row in range(int(rows * self.needles)):
            if row % 2:
                self._hide(tokens[row], weights[row], 0, length, at_depth=True)
            else:
                self._pairs(tokens[row], weights[row])
        return Batch(tokens, weights)

    def _pairs(self, tokens: NDArray[np.int64], weights: NDArray[np.float32]) -> None:
        """Many needles in one window, each with its question 0 to a few hundred tokens later."""
        start = 0
        longest = max(form.statement_length + form.question_length for form in self.forms.values())
        while len(tokens) - start > longest:
            gap = int(np.exp(self.random.uniform(np.log(8), np.log(400))))
            end = min(len(tokens), start + longest + gap)
            self._hide(tokens, weights, start, end, at_depth=False)
            start = end + int(self.random.integers(0, 24))

    def _hide(
        self, tokens: NDArray[np.int64], weights: NDArray[np.float32], start: int, end: int, *, at_depth: bool
    ) -> None:
        """Overwrite part of ``tokens[start:end]``: a statement first or at a random depth, question and answer last."""
        form = self.forms[LANGUAGES[self.random.integers(len(LANGUAGES))]]
        digits = self.digit[self.random.integers(0, 10, DIGITS)]
        asked = end - form.question_length
        stated = start + (int(self.random.integers(0, asked - form.statement_length - start + 1)) if at_depth else 0)
        tokens[stated : stated + form.statement_length] = np.concatenate((form.before, digits, form.after))
        tokens[asked:end] = np.concatenate((form.question, digits))
        weights[end - DIGITS : end] = ANSWER_WEIGHT
        # the statement's own digits cannot be predicted: no gradient from guessing them
        weights[stated + len(form.before) : stated + len(form.before) + DIGITS] = 0.0
