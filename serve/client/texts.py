"""Material from the held-out text pools: drawn by the sealed seed, tokenised by the engine, never used twice."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import httpx
from pydantic import JsonValue

from runner.errors import InputError, SeatError
from serve.client.context import WindowContext

LANGUAGES = ("en", "ja", "code")


@dataclass(frozen=True)
class Text:
    """Token ids of one document of the material."""

    id: str
    language: str
    tokens: tuple[int, ...]


class Tokeniser:
    """``POST /tokenize`` of the engine under test, without special tokens."""

    def __init__(self, client: httpx.Client, model: str) -> None:
        self._client, self._model = client, model

    def __call__(self, text: str) -> list[int]:
        """Token ids. Raises SeatError where the engine does not answer with them."""
        body = {"model": self._model, "prompt": text, "add_special_tokens": False}
        try:
            answer = self._client.post("/tokenize", json=body).raise_for_status().json()
            return [int(token) for token in answer["tokens"]]
        except (httpx.HTTPError, KeyError, TypeError, ValueError) as error:
            raise SeatError(
                "the engine does not tokenise", where="POST /tokenize", expected='{"tokens": [...]}', found=str(error)
            ) from error


class TextStream:
    """One language's pool as an endless-looking stream of tokens in drawn document order; nothing comes twice."""

    def __init__(self, context: WindowContext, tokenise: Callable[[str], list[int]], language: str) -> None:
        self._language = language
        self._pool = context.pools / f"{language}.jsonl"
        self._held: list[int] = []
        self._documents = self._drawn(context, tokenise)

    def _drawn(self, context: WindowContext, tokenise: Callable[[str], list[int]]) -> Iterator[list[int]]:
        try:
            texts = [json.loads(line)["text"] for line in self._pool.read_text(encoding="utf-8").splitlines()]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(
                "a text pool cannot be read",
                where=str(self._pool),
                expected='one {"id", "language", "text"} a line',
                found=str(error),
            ) from error
        taken: list[JsonValue] = []
        context.drawn[self._language] = {"of": len(texts), "documents": taken}
        for index in context.draw.permutation(f"{context.material_label}/{self._language}", len(texts)):
            taken.append(index)
            yield tokenise(texts[index])

    def take(self, count: int) -> list[int]:
        """The next ``count`` tokens. Raises InputError where the pool has no more."""
        while len(self._held) < count:
            document = next(self._documents, None)
            if document is None:
                raise InputError(
                    "the text pool is too small for this window",
                    where=str(self._pool),
                    expected=f"{count} more tokens",
                    found=f"{len(self._held)}",
                    next_step="ask for fewer or shorter documents in the order",
                )
            self._held += document
        taken, self._held = self._held[:count], self._held[count:]
        return taken


class Texts:
    """The pools of all languages of a window."""

    def __init__(self, context: WindowContext, client: httpx.Client) -> None:
        self.tokenise = Tokeniser(client, context.manifest.served_name)
        self._context = context
        self._streams: dict[str, TextStream] = {}

    def take(self, language: str, count: int) -> list[int]:
        """``count`` unused tokens of one language."""
        if language not in self._streams:
            self._streams[language] = TextStream(self._context, self.tokenise, language)
        return self._streams[language].take(count)

    def documents(self, count: int, tokens: int, languages: tuple[str, ...]) -> list[Text]:
        """``count`` documents of ``tokens`` tokens, languages in turn."""
        found = []
        for index in range(count):
            language = languages[index % len(languages)]
            found.append(Text(f"d{index + 1:03d}-{language}", language, tuple(self.take(language, tokens))))
        return found


def listed(texts: list[Text]) -> dict[str, JsonValue]:
    """The material as it is recorded in the evidence."""
    return {text.id: {"language": text.language, "tokens": list(text.tokens)} for text in texts}
