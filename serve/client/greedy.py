"""Free-running greedy texts: how many draft tokens they accept, and what they are token by token."""

from __future__ import annotations

from typing import Any

from runner.model.evidence import Evidence
from serve.client.capture import Capture, connect, record
from serve.client.context import WindowContext
from serve.client.texts import LANGUAGES, Text, Texts, listed


def acceptance(context: WindowContext) -> Evidence:
    """``texts`` completions of ``tokens`` tokens in one ``language``, one after the other: no step holds two of them.

    Arguments: ``language``, ``texts``, ``tokens``, ``prompt_tokens``. The end of a text is ignored.
    """
    return greedy_texts(context, (context.text("language"),), rows=1)


def greedy_band(context: WindowContext) -> Evidence:
    """As :func:`acceptance` in several ``languages``, ``rows`` texts at once, with ``top`` logprobs a token."""
    told = {
        "logprobs": context.integer("top", 4),
        "return_token_ids": True,
        "return_tokens_as_token_ids": True,
    }
    return greedy_texts(context, context.texts("languages", LANGUAGES), rows=context.integer("rows", 1), **told)


def greedy_texts(context: WindowContext, languages: tuple[str, ...], rows: int, **told: Any) -> Evidence:
    """``texts`` completions of exactly ``tokens`` tokens, ``rows`` at once; ``told`` is what else each asks for."""
    tokens = context.integer("tokens", 64)
    with connect(context) as client:
        prompts = Texts(context, client).documents(
            context.integer("texts", 6), context.integer("prompt_tokens", 64), languages
        )
    fixed = {"max_tokens": tokens, "min_tokens": tokens, "ignore_eos": True} | told

    def body(text: Text) -> tuple[str, dict[str, Any]]:
        return text.id, {"prompt": list(text.tokens), **fixed}

    def collect(capture: Capture) -> None:
        for start in range(0, len(prompts), rows):
            capture.complete_all([body(text) for text in prompts[start : start + rows]])

    return record(context, collect, material={"texts": listed(prompts)})


__all__ = ["acceptance", "greedy_band", "greedy_texts"]
