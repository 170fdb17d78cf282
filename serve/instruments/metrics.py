"""Readings of the Prometheus text that an engine serves at ``/metrics``."""

from __future__ import annotations

import re

from runner.model.evidence import Evidence

GENERATION_TOKENS = "vllm:generation_tokens_total"
PREEMPTIONS = "vllm:num_preemptions_total"
PREFIX_CACHE_HITS = "vllm:prefix_cache_hits_total"
FINISHED_REQUESTS = "vllm:request_success_total"
DECODE_SECONDS = "vllm:request_decode_time_seconds_sum"

READ = (GENERATION_TOKENS, PREEMPTIONS, PREFIX_CACHE_HITS, FINISHED_REQUESTS, DECODE_SECONDS)
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
