"""Retrieval: one needle in one unrepeated haystack, at several depths, in the forms the pack was trained on."""

from __future__ import annotations

from pydantic import JsonValue

from recipe.mini.needles import DIGITS, needle
from runner.material import needle_answer
from runner.model.evidence import Evidence
from serve.client.capture import Capture, connect, record
from serve.client.context import WindowContext
from serve.client.texts import LANGUAGES, Texts

_ANSWER_TOKENS = DIGITS + 3


def needles(context: WindowContext) -> Evidence:
    """Arguments ``depths`` (per cent), ``prompt_tokens`` and ``languages``: one trial for each depth and language."""
    length = context.integer("prompt_tokens")
    material: dict[str, JsonValue] = {}
    prompts: list[tuple[str, list[int]]] = []
    with connect(context) as client:
        texts = Texts(context, client)
        for language in context.texts("languages", LANGUAGES):
            for depth in context.integers("depths", (10, 30, 50, 70, 90)):
                identifier = f"{language}-{depth:02d}"
                digits = needle_answer(context.draw, context.material_label, identifier)
                statement, question = (texts.tokenise(part) for part in needle(language, digits))
                haystack = texts.take(language, length - len(statement) - len(question))
                at = len(haystack) * depth // 100
                prompts.append((identifier, haystack[:at] + statement + haystack[at:] + question))
                material[identifier] = {"language": language, "depth_percent": depth, "answer": digits}

    def collect(capture: Capture) -> None:
        for identifier, prompt in prompts:
            capture.complete(identifier, prompt=prompt, max_tokens=_ANSWER_TOKENS, return_token_ids=True)

    return record(context, collect, material={"needles": material})
