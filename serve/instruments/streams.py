"""Streamed completions of a window as measures, with what is wrong with them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from runner.digest import sha256_json
from runner.model.evidence import Evidence, Exchange
from runner.model.sample import StreamMeasure
from serve.instruments.answers import Streamed, material, read_stream
from serve.instruments.likelihood import by_id


def read_texts(evidence: Evidence) -> tuple[list[StreamMeasure], list[str]]:
    """One measure for each text of the material; faults name texts.

    Faults: a text never asked, errors, tokens streamed that ``usage`` does not count or the other way round, an empty
    completion, the same prompt twice.
    """
    exchanges = by_id(evidence)
    texts: list[StreamMeasure] = []
    faults: list[str] = []
    for identifier, text in material(evidence, "texts").items():
        exchange = exchanges.get(identifier)
        if exchange is None:
            faults.append(f"{identifier}: never asked")
            continue
        streamed = read_stream(exchange)
        faults += streamed.faults or _token_faults(identifier, streamed)
        texts.append(_measure(exchange, text["language"], streamed))
    prompts = Counter(text.prompt_digest for text in texts)
    faults += [f"{text.id}: its prompt is not its own" for text in texts if prompts[text.prompt_digest] > 1]
    if not texts:
        faults.append("no completion")
    return texts, faults


def _token_faults(identifier: str, streamed: Streamed) -> list[str]:
    if not streamed.completion_tokens:
        return [f"{identifier}: an empty completion"]
    if len(streamed.token_ids) != streamed.completion_tokens:
        return [f"{identifier}: {len(streamed.token_ids)} tokens streamed, usage says {streamed.completion_tokens}"]
    return []


def _measure(exchange: Exchange, language: str, streamed: Streamed) -> StreamMeasure:
    times = streamed.token_times
    gaps = sorted(later - earlier for earlier, later in pairwise(times))
    return StreamMeasure(
        id=exchange.id,
        language=language,
        prompt_digest=sha256_json(exchange.request.get("prompt")),
        completion_tokens=streamed.completion_tokens or 0,
        ttft_ns=times[0] - exchange.sent_ns if times else 0,
        decode_ns=times[-1] - times[0] if times else 0,
        inter_token_ns=(quantile(gaps, 50), quantile(gaps, 95), quantile(gaps, 99)),
        finish_reason=streamed.finish_reason,
        events=streamed.events,
        first_tokens=streamed.first_tokens,
        output_digest=sha256_json(list(streamed.token_ids)),
    )


def quantile(ordered: Sequence[int], percent: int) -> int:
    """Nearest-rank quantile; 0 where there is nothing."""
    return ordered[min(len(ordered) * percent // 100, len(ordered) - 1)] if ordered else 0
