"""Samples: what an instrument made of a window's evidence. Gates read nothing else."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from runner.model.answer_measure import AnswerMeasure
from runner.model.base import DecimalText, Digest, Record, Slug
from runner.model.desk_measure import KernelSpeedMeasure, ParityMeasure, PressureMeasure, SanitizerMeasure
from runner.model.engine_measure import EngineMeasure
from runner.model.evidence import CounterRow, DeclineRow


class Engagement(Record):
    """Counter differences of one rank over the window (after minus before)."""

    rank: int
    witness: tuple[CounterRow, ...]
    candidate: tuple[CounterRow, ...]
    declines: tuple[DeclineRow, ...]


class StreamMeasure(Record):
    """One streamed completion."""

    id: str
    language: str
    prompt_digest: Digest
    completion_tokens: int
    """From ``usage``, never from counting events."""
    ttft_ns: int
    decode_ns: int
    """First token to last token."""
    inter_token_ns: tuple[int, int, int]
    """p50, p95 and p99 of the time between tokens."""
    finish_reason: str
    events: int = 0
    """Events that carried tokens: with speculation, or a parser in between, one event carries several."""
    first_tokens: int = 1
    """Tokens of the first such event; no time between events belongs to them."""
    output_digest: Digest | None = None
    """SHA-256 of the generated ids: another text is another workload where a draft model speculates."""


class SpeedMeasure(Record):
    """One block of streamed completions."""

    kind: Literal["speed"] = "speed"
    streams: int
    texts: tuple[StreamMeasure, ...]
    decode_rate: DecimalText
    """tok/s of one stream after the first token: geometric mean over languages."""
    aggregate_rate: DecimalText
    """tok/s of all streams over the block's wall time."""
    server_tokens: int
    """Generation tokens by ``/metrics``."""
    server_decode_ns: int
    """Decode time by ``/metrics``."""


class DocumentMeasure(Record):
    """Negative log-likelihood of one document, in nats."""

    id: str
    language: str
    tokens: int
    nll: DecimalText


class PerplexityMeasure(Record):
    """Perplexity, prefill or teacher-forced decode."""

    kind: Literal["perplexity"] = "perplexity"
    documents: tuple[DocumentMeasure, ...]
    preemptions: int


class DrawnPosition(Record):
    """One position of a document, drawn from the seed, whose top logprobs are in the committed evidence."""

    position: int
    kl: DecimalText
    """In nats."""
    top1_agrees: bool


class DivergenceDocument(Record):
    """KL divergence of the candidate from the incumbent over one document, in nats."""

    id: str
    positions: int
    mean_kl: DecimalText
    max_kl: DecimalText
    top1_agree: int
    drawn: tuple[DrawnPosition, ...] = ()


class DivergenceMeasure(Record):
    """Top-64 logprobs per position, candidate against incumbent."""

    kind: Literal["divergence"] = "divergence"
    reference_window: Slug
    documents: tuple[DivergenceDocument, ...]


class NeedleTrial(Record):
    """One needle in one haystack."""

    id: str
    language: str
    depth_percent: int
    prompt_tokens: int
    found: bool


class NeedleMeasure(Record):
    """Retrieval over several depths."""

    kind: Literal["needle"] = "needle"
    trials: tuple[NeedleTrial, ...]


class RankShift(Record):
    """How one rank's deliberate change moved the output, in nats of logprob."""

    rank: int
    observed: DecimalText
    """Root mean square of the logprob change over all forced tokens."""
    predicted: DecimalText | None = None
    """The reference forward's root mean square change, where a reference predicts it."""
    error: DecimalText | None = None
    """Root mean square of (observed − predicted) per token, divided by ``predicted``."""


class ShiftMeasure(Record):
    """Watermark, perturbation or knock-out: the output must move, rank by rank."""

    kind: Literal["shift"] = "shift"
    ranks: tuple[RankShift, ...]
    floor: DecimalText
    """The same quantity with nothing changed (repeat of the same request)."""


class RefusalMeasure(Record):
    """A boot that strict had to refuse."""

    kind: Literal["refusal"] = "refusal"
    refused: bool
    reason: str
    ranks: tuple[int, ...]


class KvMeasure(Record):
    """The KV window, filled rather than read from a log."""

    kind: Literal["kv"] = "kv"
    max_model_len: int
    pool_tokens: int
    filled_tokens: int
    preemptions: int
    beyond_limit_status: int
    """HTTP status of a request one token past the limit."""


class FinishMeasure(Record):
    """Finish reasons of free-running completions."""

    kind: Literal["finish"] = "finish"
    texts: tuple[StreamMeasure, ...]


class PackMeasure(Record):
    """Pack closure and census."""

    kind: Literal["pack"] = "pack"
    header_digest: Digest
    payload_digest: Digest
    faults: tuple[str, ...]


class ProductMeasure(Record):
    """What a recipe made, read again from disk and compared with its order."""

    kind: Literal["product"] = "product"
    digests: dict[str, Digest]
    """As found on disk, by name."""
    summary: dict[str, str]
    """Counts and bytes, by name."""
    faults: tuple[str, ...]


class Claim(Record):
    """One claim of an order, looked at again."""

    fact: Slug
    stated: str
    """Value with unit, or the statement where it has no value."""
    found: str
    """What the probe came to, or why nobody could look."""
    agrees: bool | None
    """None where nobody could look."""


class ClaimsMeasure(Record):
    """The standing facts of an order against their probes."""

    kind: Literal["claims"] = "claims"
    claims: tuple[Claim, ...]


class SensitivityRow(Record):
    """What one changed layer costs, or all of them together."""

    layer: str
    """Its prefix, or ``together``."""
    deltas: dict[str, DecimalText]
    """Document to the rise of its mean loss, in nats."""
    mean_kl: DecimalText
    """KL(standing ‖ changed), mean over documents, in nats."""


class SensitivityMeasure(Record):
    """One changed layer at a time, by a reference forward."""

    kind: Literal["sensitivity"] = "sensitivity"
    tokens: int
    """Scored tokens of all documents."""
    rows: tuple[SensitivityRow, ...]


class FieldPair(Record):
    """One requested value beside what the live engine says."""

    name: str
    requested: str
    resolved: str


class ResolvedMeasure(Record):
    """Requested against resolved configuration."""

    kind: Literal["resolved"] = "resolved"
    fields: tuple[FieldPair, ...]


class RestoreMeasure(Record):
    """What was left after the boots, and whether the canonical state came back."""

    kind: Literal["restore"] = "restore"
    leftovers: tuple[str, ...]
    fields: tuple[FieldPair, ...]


class EngagedMeasure(Record):
    """A window whose only purpose is its engagement counters."""

    kind: Literal["engaged"] = "engaged"
    tokens: int


Measure = Annotated[
    SpeedMeasure
    | PerplexityMeasure
    | DivergenceMeasure
    | NeedleMeasure
    | ShiftMeasure
    | RefusalMeasure
    | KvMeasure
    | FinishMeasure
    | ParityMeasure
    | KernelSpeedMeasure
    | PressureMeasure
    | SanitizerMeasure
    | PackMeasure
    | ProductMeasure
    | ClaimsMeasure
    | SensitivityMeasure
    | ResolvedMeasure
    | RestoreMeasure
    | EngagedMeasure
    | EngineMeasure
    | AnswerMeasure,
    Field(discriminator="kind"),
]


class Sample(Record):
    """One instrument reading with everything a gate needs to trust or refuse it."""

    window: Slug
    boot: str
    instrument: str
    variant: Slug
    evidence: tuple[Digest, ...]
    """SHA-256 of each evidence file the reading came from."""
    measure: Measure
    engagement: tuple[Engagement, ...]
    disturbed: tuple[str, ...] = ()
    """Sealed machine-state limits that were exceeded while the window was open."""
    faults: tuple[str, ...] = ()
    """What makes this reading no measurement (ids not forced, preemption, tokens that disagree with /metrics ...)."""
