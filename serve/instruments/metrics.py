"""Readings of the Prometheus text that an engine serves at ``/metrics``."""

from __future__ import annotations

import re

from runner.model.evidence import Evidence

GENERATION_TOKENS = "vllm:generation_tokens_total"
PREEMPTIONS = "vllm:num_preemptions_total"
PREFIX_CACHE_HITS = "vllm:prefix_cache_hits_total"
FINISHED_REQUESTS = "vllm:request_success_total"
DECODE_SECONDS = "vllm:request_decode_time_seconds_sum"

DRAFTS = "vllm:spec_decode_num_drafts_total"
DRAFT_TOKENS = "vllm:spec_decode_num_draft_tokens_total"
ACCEPTED_TOKENS = "vllm:spec_decode_num_accepted_tokens_total"
ACCEPTED_BY_POSITION = "vllm:spec_decode_num_accepted_tokens_per_pos_total"

_SPECULATION = (DRAFTS, DRAFT_TOKENS, ACCEPTED_TOKENS, ACCEPTED_BY_POSITION)
READ = (GENERATION_TOKENS, PREEMPTIONS, PREFIX_CACHE_HITS, FINISHED_REQUESTS, DECODE_SECONDS, *_SPECULATION)
"""All that instruments read."""

LINE = re.compile(r"(?P<name>[A-Za-z_:][A-Za-z0-9_:]*)(?:\{[^}]*\})? (?P<value>[0-9.eE+-]+)")
"""One sample of a family."""


def total(text: str, name: str) -> float | None:
    """Sum of a family over its labels; None where the engine does not serve it."""
    values = [
        float(found["value"]) for line in text.splitlines() if (found := LINE.match(line)) and found["name"] == name
    ]
    return sum(values) if values else None


def moved(evidence: Evidence, name: str) -> float | None:
    """By how much a counter moved in the window; None where it was not served at both ends.

    A counter that first appears inside the window counts from 0, as the metrics format has it.
    """
    after = total(evidence.metrics_after, name)
    if after is None or not evidence.metrics_before:
        return None
    return after - (total(evidence.metrics_before, name) or 0.0)


def moved_by(evidence: Evidence, name: str, label: str) -> dict[str, float]:
    """By how much a counter moved in the window, by the values of one label; empty where it is not served."""
    before, after = by_label(evidence.metrics_before, name, label), by_label(evidence.metrics_after, name, label)
    return {value: count - before.get(value, 0.0) for value, count in after.items()}


def by_label(text: str, name: str, label: str) -> dict[str, float]:
    """A family's samples by the values of one label."""
    pattern = re.compile(rf'[{{,]{re.escape(label)}="([^"]*)"')
    values: dict[str, float] = {}
    for line in text.splitlines():
        found, labelled = LINE.match(line), pattern.search(line)
        if found and labelled and found["name"] == name:
            values[labelled[1]] = values.get(labelled[1], 0.0) + float(found["value"])
    return values
