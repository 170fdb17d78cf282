"""A few decode steps under the engine's profiler, on every rank; the traces are reduced here and not kept."""

from __future__ import annotations

import time
from pathlib import Path

import httpx
from pydantic import JsonValue

from runner.errors import SeatError
from runner.model.evidence import Evidence
from serve.adapters.side import run_job
from serve.client.capture import Capture, completion_body, connect, record
from serve.client.context import WindowContext
from serve.client.texts import LANGUAGES, Texts, listed

_WRITTEN_SECONDS = 120.0
"""How long the profilers of all ranks may take to write what they saw."""
_STEP = 0.2
_REDUCE_SECONDS = 480.0
TRACE = "*.trace.json*"


def traced(context: WindowContext) -> Evidence:
    """Arguments ``streams`` (default 1), ``tokens`` (default 32) and ``prompt_tokens`` (default 32).

    One completion before the window opens is run without the profiler, so that nothing compiles or captures inside.
    Raises SeatError where the engine has no profiler or a rank writes no trace.
    """
    streams, tokens = context.integer("streams", 1), context.integer("tokens", 32)
    with connect(context) as client:
        prompts = Texts(context, client).documents(
            streams, context.integer("prompt_tokens", 32), context.texts("languages", LANGUAGES)
        )
        wake = {"prompt": list(prompts[0].tokens), "max_tokens": tokens, "ignore_eos": True}
        client.post("/v1/completions", json=completion_body(context, wake))
    fixed = {"max_tokens": tokens, "min_tokens": tokens, "ignore_eos": True}
    folder = _folder(context)
    seen = _traces(folder)
    written: list[Path] = []

    def collect(capture: Capture) -> None:
        _profile(capture.client, "start")
        capture.complete_all([(text.id, {"prompt": list(text.tokens), **fixed}) for text in prompts])
        _profile(capture.client, "stop")
        written.extend(_await(folder, seen, len(context.boot.record.ranks)))

    evidence = record(context, collect, material={"texts": listed(prompts)})
    reduced: JsonValue = run_job(
        "serve.traces.reduce", {"traces": [str(path) for path in written]}, timeout=_REDUCE_SECONDS
    )
    for path in written:
        path.unlink()
    return evidence.model_copy(update={"facts": {**evidence.facts, "traces": reduced}})


def _profile(client: httpx.Client, what: str) -> None:
    try:
        client.post(f"/{what}_profile", timeout=_WRITTEN_SECONDS).raise_for_status()
    except httpx.HTTPError as error:
        raise SeatError(
            "the engine has no profiler",
            where=f"POST /{what}_profile",
            found=str(error),
            next_step="a seat that is traced configures it: a word of `command` with {traces}",
        ) from error


def _folder(context: WindowContext) -> Path:
    if context.boot.traces is None:
        raise SeatError("engines of this seat have no folder for traces", where=context.manifest.name)
    return context.boot.traces


def _traces(folder: Path) -> frozenset[Path]:
    return frozenset(folder.glob(TRACE))


def _await(folder: Path, seen: frozenset[Path], ranks: int) -> list[Path]:
    """New traces, once there is one a rank and none grows any more; after the limit those that are there."""
    limit = time.monotonic() + _WRITTEN_SECONDS
    last: dict[Path, int] = {}
    while True:
        sizes = {path: path.stat().st_size for path in sorted(_traces(folder) - seen)}
        if (len(sizes) >= ranks and sizes == last) or time.monotonic() > limit:
            return list(sizes)
        last = sizes
        time.sleep(_STEP)


__all__ = ["traced"]
