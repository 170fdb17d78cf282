"""Logprobs of known tokens, from ``prompt_logprobs`` or from forced decode, always selected by token id."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ctypes import c_float
from typing import Any

from runner.model.base import decimal_text
from runner.model.evidence import Evidence, Exchange
from runner.model.sample import DocumentMeasure, PerplexityMeasure
from runner.stats import total
from serve.instruments.answers import choice, error_text, material
from serve.instruments.metrics import PREEMPTIONS, PREFIX_CACHE_HITS, moved

STAND_IN = -9999.0
"""What servers write for −∞, which JSON cannot hold; no logprob is this low."""
ROUNDING = 1e-3
"""How far above 0 rounding may carry a logprob."""
TOKEN_NAME = "token_id:"
"""Prefix of token names in an answer to ``return_tokens_as_token_ids``."""


def single(value: float) -> float:
    """The value as the engine computed it, in float32, however many digits it was written with; infinite beyond."""
    return c_float(value).value


def prompt_logprobs(exchange: Exchange, tokens: Sequence[int]) -> tuple[tuple[float, ...], str]:
    """Logprob of ``tokens[1:]`` by ``prompt_logprobs``, or no values and what is wrong."""
    found = choice(exchange)
    if found is None:
        return (), error_text(exchange)
    entries = found.get("prompt_logprobs")
    if not isinstance(entries, list) or len(entries) != len(tokens):
        return (), f"prompt_logprobs of {len(tokens)} tokens are missing or of another length"
    values = []
    for position, (entry, token) in enumerate(zip(entries[1:], tokens[1:], strict=True), 1):
        named = entry.get(str(token)) if isinstance(entry, dict) else None
        if not isinstance(named, dict) or not isinstance(named.get("logprob"), int | float):
            return (), f"position {position} has no logprob of its own token"
        values.append(float(named["logprob"]))
    return _usable(values)


def forced_logprobs(exchange: Exchange, tokens: Sequence[int]) -> tuple[tuple[float, ...], str]:
    """Raw logprob of each forced token, or no values and what is wrong (above all: ids that were not forced)."""
    found = choice(exchange)
    if found is None:
        return (), error_text(exchange)
    if found.get("token_ids") != list(tokens[1:]):
        return (), "the generated ids are not the forced ids"
    values = (found.get("logprobs") or {}).get("token_logprobs")
    if not isinstance(values, list) or len(values) != len(tokens) - 1:
        return (), "token_logprobs are missing or of another length"
    if not all(isinstance(value, int | float) for value in values):
        return (), "a token has no logprob"
    return _usable(values)


def _usable(values: Sequence[float]) -> tuple[tuple[float, ...], str]:
    """The values, or none and the first position (1 is the second token) that holds a stand-in for infinity."""
    for position, value in enumerate(values, 1):
        if not STAND_IN < value < ROUNDING:
            return (), f"position {position} has logprob {value}, which is no logarithm of a probability"
    return tuple(map(single, values)), ""


def top_logprobs(exchange: Exchange) -> list[Mapping[int, float]]:
    """Token id → logprob of each generated position; a position without entries is empty.

    An entry that is not named by id is left out.
    """
    found = choice(exchange) or {}
    entries = (found.get("logprobs") or {}).get("top_logprobs") or []
    return [_by_id(entry) if isinstance(entry, dict) else {} for entry in entries]


def _by_id(entry: Mapping[str, Any]) -> Mapping[int, float]:
    return {
        int(name.removeprefix(TOKEN_NAME)): single(value)
        for name, value in entry.items()
        if name.startswith(TOKEN_NAME)
    }


def by_id(evidence: Evidence) -> dict[str, Exchange]:
    """Exchanges by their id."""
    return {exchange.id: exchange for exchange in evidence.exchanges}


def state_faults(evidence: Evidence) -> list[str]:
    """Preemptions (a resumed request is prefilled again) and prefix-cache hits make the rows other than declared."""
    preempted = moved(evidence, PREEMPTIONS)
    faults = []
    if preempted is None:
        faults.append("the engine serves no preemption counter")
    elif preempted:
        faults.append(f"{preempted:.0f} preemptions inside the window")
    # An engine without a prefix cache serves no such family.
    if hits := moved(evidence, PREFIX_CACHE_HITS):
        faults.append(f"{hits:.0f} prefix-cache hits inside the window")
    return faults


def perplexity(evidence: Evidence, *, forced: bool) -> tuple[PerplexityMeasure, list[str]]:
    """Negative log-likelihood of every document of the material, and faults naming documents."""
    exchanges, faults, documents = by_id(evidence), state_faults(evidence), []
    for identifier, text in material(evidence, "texts").items():
        if identifier not in exchanges:
            faults.append(f"{identifier}: never asked")
            continue
        read = forced_logprobs if forced else prompt_logprobs
        values, fault = read(exchanges[identifier], text["tokens"])
        if fault:
            faults.append(f"{identifier}: {fault}")
            continue
        documents.append(
            DocumentMeasure(
                id=identifier, language=text["language"], tokens=len(values), nll=decimal_text(-total(values))
            )
        )
    if not documents:
        faults.append("no document was scored")
    measure = PerplexityMeasure(documents=tuple(documents), preemptions=round(moved(evidence, PREEMPTIONS) or 0))
    return measure, faults
