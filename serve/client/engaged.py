"""A short request with both phases, whose only purpose is what the counters say of it."""

from __future__ import annotations

from runner.model.evidence import Evidence
from serve.client.capture import Capture, connect, record
from serve.client.context import WindowContext
from serve.client.texts import LANGUAGES, Texts, listed


def engaged(context: WindowContext) -> Evidence:
    """Arguments ``prompt_tokens`` (default 96: more rows than a decode kernel takes) and ``tokens`` (default 16)."""
    tokens = context.integer("tokens", 16)
    with connect(context) as client:
        prompts = Texts(context, client).documents(
            1, context.integer("prompt_tokens", 96), context.texts("languages", LANGUAGES)
        )

    def collect(capture: Capture) -> None:
        for text in prompts:
            capture.complete(text.id, prompt=list(text.tokens), max_tokens=tokens, min_tokens=tokens, ignore_eos=True)

    return record(context, collect, material={"texts": listed(prompts)})
