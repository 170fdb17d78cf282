"""Windows about what an engine answers: first tokens, sane text, scores, images; and what each rank holds."""

from __future__ import annotations

from typing import Any

from pydantic import JsonValue

from runner.material import card_answer, score_answer
from runner.model.evidence import Evidence
from serve.client.capture import CHAT, Capture, connect, record
from serve.client.card import data_url
from serve.client.context import WindowContext
from serve.client.greedy import greedy_texts
from serve.client.texts import LANGUAGES, Texts, listed


def ttft(context: WindowContext) -> Evidence:
    """``texts`` prompts of ``prompt_tokens`` tokens, one after the other, of which only the first token is asked."""
    with connect(context) as client:
        prompts = Texts(context, client).documents(
            context.integer("texts", 8), context.integer("prompt_tokens", 1024), context.texts("languages", LANGUAGES)
        )
    told: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}, "return_token_ids": True}

    def collect(capture: Capture) -> None:
        for text in prompts:
            capture.complete(text.id, prompt=list(text.tokens), max_tokens=1, ignore_eos=True, **told)

    return record(context, collect, material={"texts": listed(prompts)})


def sanity(context: WindowContext) -> Evidence:
    """Free-running texts with their token ids; arguments ``texts``, ``tokens``, ``prompt_tokens``, ``languages``."""
    return greedy_texts(context, context.texts("languages", LANGUAGES), rows=1, return_token_ids=True)


def score(context: WindowContext) -> Evidence:
    """``items`` contexts of ``prompt_tokens`` tokens, each with ``choices`` continuations of ``tokens`` tokens.

    The right one is what the document goes on with, at a drawn place; the others are further pieces of the
    language's drawn text. All are forced, ``rows`` at a time, so that the decode path gives every logprob.
    """
    count, choices = context.integer("items", 24), context.integer("choices", 4)
    length, tokens = context.integer("prompt_tokens", 48), context.integer("tokens", 16)
    languages, rows = context.texts("languages", LANGUAGES), context.integer("rows", 4)
    items: dict[str, Any] = {}
    with connect(context) as client:
        texts = Texts(context, client)
        for index in range(count):
            language, name = languages[index % len(languages)], f"i{index + 1:03d}"
            whole = texts.take(language, length + tokens)
            answer = score_answer(context.draw, context.material_label, name, choices)
            others = [texts.take(language, tokens) for _ in range(choices - 1)]
            continuations = [*others[:answer], whole[length:], *others[answer:]]
            items[name] = {"language": language, "context": whole[:length], "choices": continuations, "answer": answer}
    bodies = [
        (f"{name}/{number}", _forced(item["context"], continuation))
        for name, item in items.items()
        for number, continuation in enumerate(item["choices"])
    ]

    def collect(capture: Capture) -> None:
        for start in range(0, len(bodies), rows):
            capture.complete_all(bodies[start : start + rows])

    return record(context, collect, material={"items": items})


def _forced(prompt: list[int], tokens: list[int]) -> dict[str, Any]:
    length = {"max_tokens": len(tokens), "min_tokens": len(tokens), "ignore_eos": True}
    told = {"logprobs": 0, "return_token_ids": True, "return_tokens_as_token_ids": True}
    return {"prompt": prompt, **length, **told, "vllm_xargs": {"force_ids": tokens}}


def vision(context: WindowContext) -> Evidence:
    """``cards`` images, each with a drawn number of ``digits`` digits that the answer has to name."""
    digits = context.integer("digits", 3)
    cards: dict[str, JsonValue] = {}
    for index in range(context.integer("cards", 8)):
        name = f"c{index + 1}"
        cards[name] = {"answer": card_answer(context.draw, context.material_label, name, digits)}
    question = context.text("question", "Which number is on the card? Answer with its digits alone.")

    def collect(capture: Capture) -> None:
        for name, card in cards.items():
            assert isinstance(card, dict), "written above"
            image = {"type": "image_url", "image_url": {"url": data_url(str(card["answer"]))}}
            content = [image, {"type": "text", "text": question}]
            capture.ask(name, CHAT, messages=[{"role": "user", "content": content}], max_tokens=16)

    return record(context, collect, material={"cards": cards})
