"""Perplexity at prefill-size rows: the engine scores whole documents with ``prompt_logprobs``."""

from __future__ import annotations

from runner.model.evidence import Evidence
from serve.client.capture import Capture, connect, record
from serve.client.context import WindowContext
from serve.client.texts import LANGUAGES, Texts, listed


def ppl_prefill(context: WindowContext) -> Evidence:
    """``documents`` of ``tokens`` tokens, one request at a time, so that a step has a whole document's rows.

    The one generated token comes from the prefill step itself: no decode-size step happens.
    """
    with connect(context) as client:
        documents = Texts(context, client).documents(
            context.integer("documents", 24), context.integer("tokens", 256), context.texts("languages", LANGUAGES)
        )

    def collect(capture: Capture) -> None:
        for document in documents:
            capture.complete(document.id, prompt=list(document.tokens), max_tokens=1, prompt_logprobs=0)

    return record(context, collect, material={"texts": listed(documents)})
