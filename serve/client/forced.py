"""Teacher-forced decode: one-token prompts, the rest of each document forced token by token, N documents at once.

Every engine step then has exactly N rows, none of them prefill, and the answer carries the model's own logprobs of the
forced tokens. All documents are equally long, so only the first and last steps of a batch have fewer rows.
"""

from __future__ import annotations

from typing import Any

from runner.model.evidence import POSITIONS, Evidence
from serve.client.capture import Capture, connect, record
from serve.client.context import WindowContext
from serve.client.texts import LANGUAGES, Text, Texts, listed


def forced_body(tokens: tuple[int, ...], top: int) -> dict[str, Any]:
    """Request that forces ``tokens[1:]`` after ``tokens[0]`` and returns ``top`` logprobs a position besides theirs."""
    forced = list(tokens[1:])
    return {
        "prompt": [tokens[0]],
        "max_tokens": len(forced),
        "min_tokens": len(forced),
        "ignore_eos": True,
        "logprobs": top,
        "return_token_ids": True,
        "return_tokens_as_token_ids": True,
        "vllm_xargs": {"force_ids": forced},
    }


def force_batches(capture: Capture, documents: list[Text], rows: int, top: int, prefix: str = "") -> None:
    """All documents, ``rows`` at a time; exchange ids are ``prefix`` and the document's id."""
    for start in range(0, len(documents), rows):
        batch = documents[start : start + rows]
        capture.complete_all([(prefix + text.id, forced_body(text.tokens, top)) for text in batch])


def draw_documents(context: WindowContext, count: int, tokens: int) -> list[Text]:
    """Documents for forcing, drawn by the window's material label."""
    with connect(context) as client:
        return Texts(context, client).documents(count, tokens, context.texts("languages", LANGUAGES))


def ppl_decode(context: WindowContext) -> Evidence:
    """Arguments ``documents``, ``tokens``, ``languages`` and ``rows`` (documents at once)."""
    return _forced(context, top=0)


def kld(context: WindowContext) -> Evidence:
    """As :func:`ppl_decode`, with ``top`` logprobs at every position, ``drawn`` of which are kept with the report."""
    return _forced(context, top=context.integer("top", 64), drawn=context.integer("drawn"))


def _forced(context: WindowContext, top: int, drawn: int | None = None) -> Evidence:
    documents = draw_documents(context, context.integer("documents", 24), context.integer("tokens", 128))
    material: dict[str, Any] = {"texts": listed(documents)}
    if drawn is not None:
        labels = {text.id: f"{context.material_label}/{text.id}" for text in documents}
        material[POSITIONS] = {
            text.id: list(context.draw.positions(labels[text.id], len(text.tokens) - 1, drawn)) for text in documents
        }
    rows = context.integer("rows", 8)
    return record(context, lambda capture: force_batches(capture, documents, rows, top), material=material)
