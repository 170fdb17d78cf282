"""Measures of what a serving engine holds and answers: memory, first tokens, sane text, scores, images."""

from __future__ import annotations

from typing import Literal

from runner.model.base import DecimalText, Digest, Record
from runner.model.scalars import Whole


class RankMemory(Record):
    """One rank: what was predicted before the boot beside what the live engine holds."""

    rank: int
    predicted: dict[str, int]
    """Bytes or tokens by name: ``weights_bytes``, ``scratch_bytes``, ``graph_bytes``, ``kv_cache_tokens``."""
    live: dict[str, int]
    """Every size that the engine answers for."""


class MemoryMeasure(Record):
    """Memory of every rank."""

    kind: Literal["memory"] = "memory"
    ranks: tuple[RankMemory, ...]


class FirstToken(Record):
    """One prompt and how long its first token took."""

    id: str
    language: str
    prompt_tokens: int
    ttft_ns: int


class TtftMeasure(Record):
    """First tokens of one block."""

    kind: Literal["ttft"] = "ttft"
    texts: tuple[FirstToken, ...]


class SanityText(Record):
    """One free-running text."""

    id: str
    language: str
    tokens: int
    script: DecimalText
    """Share of its letters that the language is written in; for code, of its characters that are printable ASCII."""
    distinct: DecimalText
    """Share of its runs of four tokens that are different: a loop has few."""


class SanityMeasure(Record):
    """Free-running texts in several languages."""

    kind: Literal["sanity"] = "sanity"
    texts: tuple[SanityText, ...]


class ScoreItem(Record):
    """One question: which of several continuations does the text have?"""

    id: str
    language: str
    choices: int
    right: bool
    """The text's own continuation is the likeliest."""
    margin: DecimalText
    """Nats by which it is likelier than the likeliest other; negative where it is not."""


class ScoreMeasure(Record):
    """A small exact-match set, drawn from the seed."""

    kind: Literal["score"] = "score"
    items: tuple[ScoreItem, ...]


class VisionCard(Record):
    """One image with a drawn number."""

    id: str
    expected: str
    answer: str
    right: bool
    """The answer names the number, and no other."""


class VisionMeasure(Record):
    """Image cards."""

    kind: Literal["vision"] = "vision"
    cards: tuple[VisionCard, ...]


class AgreementDocument(Record):
    """One document; likelihoods are sums of negative log-probabilities in nats."""

    id: str
    tokens: int
    """Scored ones: all but the first."""
    served: DecimalText
    theirs: DecimalText
    ours: DecimalText
    """By the reference forward."""


class RowSpread(Record):
    """Distances of rows of logits from the reference forward's, relative to them."""

    median: DecimalText
    ninth_decile: DecimalText
    """Nine rows of ten are no farther away."""
    largest: DecimalText


class RoutedAgreement(Record):
    """The same rows beside our forward with the other engine's experts where our choice of them is a tie."""

    distance: RowSpread
    float16: RowSpread
    """Of our own forward with its products in float16 and the experts of float32."""
    tie: DecimalText
    """Margins of router scores up to this are ties."""
    choices: Whole
    """One a token and layer of experts."""
    ties: Whole
    others: Whole
    """Ties where the other engine took the other side."""


class AgreementMeasure(Record):
    """Another engine's logits of the served pack."""

    kind: Literal["agreement"] = "agreement"
    record: Digest
    """SHA-256 of the file that the other engine left."""
    library: str
    device: str
    distance: RowSpread
    float16: RowSpread
    """Of our own forward with its products in float16."""
    another_batch: DecimalText
    """Largest distance of the other engine from itself in another batch composition."""
    documents: tuple[AgreementDocument, ...]
    routed: RoutedAgreement | None = None
    """Absent from records of before ties were told apart."""


AnswerMeasure = MemoryMeasure | TtftMeasure | SanityMeasure | ScoreMeasure | VisionMeasure | AgreementMeasure
"""All of them; each is one kind of a sample's measure."""
