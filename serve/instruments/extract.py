"""The committed extract of a window's evidence: what its instrument reads, and no more.

An instrument reads from the extract exactly what it reads from the full evidence. The one exception are the top
logprobs of forced positions, far too many to commit: of those only the drawn positions stay, and what an instrument
says of exactly these can be read again (:mod:`serve.instruments.kld`).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from pydantic import JsonValue

from runner.digest import sha256_json
from runner.model.evidence import POSITIONS, Evidence, Exchange
from serve.instruments.answers import choice
from serve.instruments.likelihood import single
from serve.instruments.metrics import LINE, READ

PROMPT_DIGEST = "prompt_digest"
"""Stands in an extract's request for the prompt of an exchange that is not streamed."""


def extract(evidence: Evidence) -> Evidence:
    """The evidence without what no instrument reads, and without what the material says already."""
    drawn = evidence.material.get(POSITIONS)
    positions = drawn if isinstance(drawn, dict) else {}
    return evidence.model_copy(
        update={
            "metrics_before": relevant(evidence.metrics_before),
            "metrics_after": relevant(evidence.metrics_after),
            "exchanges": tuple(_exchange(one, positions.get(one.id)) for one in evidence.exchanges),
        }
    )


def relevant(text: str) -> str:
    """The lines of the text that instruments read."""
    return "".join(f"{line}\n" for line in text.splitlines() if (found := LINE.match(line)) and found["name"] in READ)


def _exchange(exchange: Exchange, positions: JsonValue) -> Exchange:
    """A scored document without other tokens' logprobs; of a prompt that no instrument reads its digest."""
    answered, request = choice(exchange), exchange.request
    if answered is None or not isinstance(exchange.body, dict):
        return exchange if exchange.events else exchange.model_copy(update={"request": _without_prompt(request)})
    if "prompt_logprobs" in request and isinstance(request.get("prompt"), list):
        scored: dict[str, Any] = {
            "prompt_logprobs": _own_tokens(answered.get("prompt_logprobs"), request["prompt"]),
        }
    elif isinstance(request.get("vllm_xargs"), dict) and isinstance(answered.get("logprobs"), dict):
        scored = {
            "token_ids": answered.get("token_ids"),
            "logprobs": _forced(answered["logprobs"], positions if isinstance(positions, list) else None),
        }
    else:
        scored = {name: value for name, value in answered.items() if name != "prompt_token_ids"}
    return exchange.model_copy(
        update={"request": _without_prompt(request), "body": {**exchange.body, "choices": [scored]}}
    )


def _without_prompt(request: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Tokens follow from the seed and the text pools, or stand in the material: their digest says which they were."""
    kept = {name: value for name, value in request.items() if name not in ("prompt", "vllm_xargs")}
    return kept | ({PROMPT_DIGEST: sha256_json(request["prompt"])} if "prompt" in request else {})


def _own_tokens(entries: Any, prompt: Any) -> Any:
    """Of each position the entry of the document's own token; anything of another form stays as it is."""
    if not isinstance(entries, list) or len(entries) != len(prompt):
        return entries
    return [_own(entry, str(token)) for entry, token in zip(entries, prompt, strict=True)]


def _own(entry: Any, token: str) -> Any:
    named = entry.get(token) if isinstance(entry, dict) else None
    if not isinstance(named, dict) or not isinstance(named.get("logprob"), int | float):
        return entry
    return {token: {"logprob": shortest(named["logprob"])}}


def _forced(logprobs: dict[str, Any], positions: Collection[Any] | None) -> dict[str, Any]:
    """The forced tokens' logprobs, or where positions were drawn the top logprobs of these alone."""
    own, top = logprobs.get("token_logprobs"), logprobs.get("top_logprobs")
    if positions is not None and isinstance(top, list):
        return {"top_logprobs": [_top(entry) if at in positions else None for at, entry in enumerate(top)]}
    return {"token_logprobs": [shortest(value) for value in own] if isinstance(own, list) else own}


def _top(entry: Any) -> Any:
    return {name: shortest(value) for name, value in entry.items()} if isinstance(entry, dict) else entry


def shortest(value: Any) -> Any:
    """The number of fewest digits that is the same float32; what is no number stays as it is.

    Engines answer float32 logprobs written as float64, twice as many digits as they have.
    """
    if not isinstance(value, float):
        return value
    texts = (f"{value:.{digits}g}" for digits in range(6, 9))
    return next((float(text) for text in texts if single(float(text)) == single(value)), value)
