"""Streamed completions: the speed blocks and the free-running texts of the finish gate."""

from __future__ import annotations

from typing import Any

from runner.model.evidence import Evidence
from serve.client.capture import Capture, completion_body, connect, record
from serve.client.context import WindowContext
from serve.client.texts import LANGUAGES, Text, Texts, listed

_STREAMED: dict[str, Any] = {
    "stream": True,
    "stream_options": {"include_usage": True},
    "return_token_ids": True,
}
_WARM_UP_TOKENS = 8


def speed(context: WindowContext) -> Evidence:
    """``streams`` completions of ``tokens`` tokens at once, one language after the other, each with its own prompt.

    Arguments: ``streams``, ``tokens``, ``prompt_tokens``, ``languages``. The end of a text is ignored, so that every
    stream has exactly ``tokens`` tokens and a kernel cannot gain by stopping early. One short completion before the
    window opens wakes what the switch of the variant has let grow cold.
    """
    streams, tokens = context.integer("streams", 1), context.integer("tokens", 128)
    languages = context.texts("languages", LANGUAGES)
    with connect(context) as client:
        texts = Texts(context, client)
        length = context.integer("prompt_tokens", 64)
        prompts = [
            Text(f"{language}-{stream + 1}", language, tuple(texts.take(language, length)))
            for language in languages
            for stream in range(streams)
        ]
        wake = completion_body(
            context, {"prompt": texts.take(languages[0], _WARM_UP_TOKENS), "max_tokens": _WARM_UP_TOKENS}
        )
        client.post("/v1/completions", json=wake | {"ignore_eos": True})

    def collect(capture: Capture) -> None:
        for language in languages:
            capture.complete_all(
                [(text.id, _body(text, tokens, fixed=True)) for text in prompts if text.language == language]
            )

    return record(context, collect, material={"texts": listed(prompts)})


def finish(context: WindowContext) -> Evidence:
    """``texts`` free-running completions one after the other; arguments ``texts``, ``tokens``, ``languages``."""
    tokens = context.integer("tokens", 256)
    with connect(context) as client:
        prompts = Texts(context, client).documents(
            context.integer("texts", 6), context.integer("prompt_tokens", 64), context.texts("languages", LANGUAGES)
        )

    def collect(capture: Capture) -> None:
        for text in prompts:
            capture.complete(text.id, **_body(text, tokens, fixed=False))

    return record(context, collect, material={"texts": listed(prompts)})


def _body(text: Text, tokens: int, *, fixed: bool) -> dict[str, Any]:
    length = {"max_tokens": tokens} | ({"min_tokens": tokens, "ignore_eos": True} if fixed else {})
    return {"prompt": list(text.tokens), **length, **_STREAMED}
