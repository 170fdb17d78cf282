"""Rates of one block of streamed completions, beside the engine's own count of tokens and time."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log
from statistics import fmean

from runner.errors import EvidenceError
from runner.model.base import decimal_text
from runner.model.evidence import Evidence
from runner.model.plan import PlannedWindow
from runner.model.sample import Sample, SpeedMeasure, StreamMeasure
from serve.instruments.base import sample
from serve.instruments.likelihood import state_faults
from serve.instruments.metrics import DECODE_SECONDS, FINISHED_REQUESTS, GENERATION_TOKENS, moved
from serve.instruments.streams import read_texts

NAME = "speed"
VERSION = 1

_SECOND_NS = 1_000_000_000
BURST = 16
"""More tokens an event than this, on average, are a parser's flushes: their times say nothing about decoding."""


def reduce(evidence: Sequence[Evidence], window: PlannedWindow) -> Sample:
    """Decode-only and aggregate rate of a block.

    Tokens that disagree with ``/metrics`` are a fault, and so are requests that finished in the window and are not
    ours, and a stream that came in bursts. Times are only recorded side by side: one late event moves
    a short block by a per cent or two, so the gate compares the two clocks over all blocks of an arm.
    """
    own = evidence[0]
    texts, faults = read_texts(own)
    faults += state_faults(own)
    faults += [f"{text.id}: finished by {text.finish_reason!r}" for text in texts if text.finish_reason != "length"]
    faults += [
        f"{text.id}: {text.completion_tokens} tokens came in {text.events} events: its clock tells the bursts"
        for text in texts
        if text.completion_tokens > BURST * text.events
    ]
    streams = window.arguments.get("streams", 1)
    if not isinstance(streams, int):
        raise EvidenceError("streams must be a whole number", where=f"window {window.id}", found=repr(streams))
    server_tokens, server_ns = moved(own, GENERATION_TOKENS), moved(own, DECODE_SECONDS)
    counted = sum(text.completion_tokens for text in texts)
    if server_tokens is None or server_ns is None:
        faults.append("the engine serves no token or decode-time counter")
    elif round(server_tokens) != counted:
        faults.append(f"usage says {counted} tokens, /metrics {server_tokens:.0f}")
    faults += _foreign_requests(own)
    measure = SpeedMeasure(
        streams=streams,
        texts=tuple(texts),
        decode_rate=decimal_text(_decode_rate(texts)),
        aggregate_rate=decimal_text(_aggregate_rate(own, counted)),
        server_tokens=round(server_tokens or 0),
        server_decode_ns=round((server_ns or 0.0) * _SECOND_NS),
    )
    return sample(evidence, measure, faults)


def _foreign_requests(evidence: Evidence) -> list[str]:
    """Requests that finished in the window and were not ours; without the counter nobody can say so."""
    finished = moved(evidence, FINISHED_REQUESTS)
    if finished is None:
        return ["the engine serves no counter of finished requests: other traffic cannot be ruled out"]
    if round(finished) != len(evidence.exchanges):
        return [f"{finished:.0f} requests finished in the window, {len(evidence.exchanges)} are ours"]
    return []


def _decode_rate(texts: Sequence[StreamMeasure]) -> float:
    """tok/s of one stream after its first event: mean over a language's streams, geometric mean over languages.

    The tokens of the first event came before the time that is divided by, so they are not counted.
    """
    by_language: dict[str, list[float]] = {}
    for text in texts:
        timed = text.completion_tokens - text.first_tokens
        if text.decode_ns > 0 and timed > 0:
            rate = timed * _SECOND_NS / text.decode_ns
            by_language.setdefault(text.language, []).append(rate)
    return exp(fmean(log(fmean(rates)) for rates in by_language.values())) if by_language else 0.0


def _aggregate_rate(evidence: Evidence, tokens: int) -> float:
    """tok/s of all streams over the time from the first request to the last answer."""
    if not evidence.exchanges:
        return 0.0
    wall = max(one.done_ns for one in evidence.exchanges) - min(one.sent_ns for one in evidence.exchanges)
    return tokens * _SECOND_NS / wall if wall > 0 else 0.0
