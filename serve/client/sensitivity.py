"""One changed layer at a time, on the desk: drawn documents, a reference forward in a process of its own."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from runner.clock import now
from runner.errors import SeatError
from runner.material import DRAWN
from runner.model.evidence import Evidence
from runner.paths import source_root
from serve.adapters.side import run_job
from serve.client.context import WindowContext
from serve.client.texts import LANGUAGES, Text, TextStream, listed

TIMEOUT_SECONDS = 600.0


def sensitivity(context: WindowContext) -> Evidence:
    """Arguments ``documents``, ``tokens`` and ``languages``.

    Raises SeatError where the reference cannot run, InputError where the pools are too small.
    """
    opened_at, opened_ns = now(), time.monotonic_ns()
    count, tokens = context.integer("documents", 24), context.integer("tokens", 128)
    languages = context.texts("languages", LANGUAGES)
    tokenise = _tokeniser(context.pack)
    streams = {language: TextStream(context, tokenise, language) for language in languages}
    documents = [
        Text(f"d{number + 1:03d}-{language}", language, tuple(streams[language].take(tokens)))
        for number in range(count)
        for language in (languages[number % len(languages)],)
    ]
    request = {
        "standing": str(source_root() / context.manifest.pack),
        "product": str(context.pack),
        "documents": {text.id: list(text.tokens) for text in documents},
    }
    answer = run_job("serve.witness.sensitivity", request, timeout=TIMEOUT_SECONDS)
    layers: dict[str, JsonValue] = {
        name: {"loss": _texts(found["loss"]), "kl": _texts(found["kl"])} for name, found in answer["layers"].items()
    }
    return Evidence(
        window=context.window.id,
        boot=context.boot.record.id,
        instrument=context.window.instrument,
        variant=context.variant,
        opened_at=opened_at,
        opened_ns=opened_ns,
        closed_ns=time.monotonic_ns(),
        material={"texts": listed(documents), DRAWN: dict(context.drawn)},
        facts={"loss": _texts(answer["loss"]), "layers": layers},
    )


def _texts(values: dict[str, float]) -> dict[str, JsonValue]:
    return {name: f"{value:.9g}" for name, value in values.items()}


def _tokeniser(pack: Path) -> Callable[[str], list[int]]:
    try:
        library: Any = importlib.import_module("tokenizers")
    except ImportError as error:
        raise SeatError(
            "the reference forward needs the engine's packages",
            expected="tokenizers and transformers",
            found=str(error),
            next_step="run `scripts/setup engine`",
        ) from error
    tokeniser = library.Tokenizer.from_file(str(pack / "tokenizer.json"))

    def tokenise(text: str) -> list[int]:
        return list(tokeniser.encode(text, add_special_tokens=False).ids)

    return tokenise
