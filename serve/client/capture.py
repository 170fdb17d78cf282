"""Opens and closes a window: counters and metrics before and after, the machine and every exchange in between."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import httpx
from pydantic import JsonValue

from runner.clock import now
from runner.errors import SeatError
from runner.material import DRAWN
from runner.model.evidence import Call, Evidence, Exchange
from serve.client.context import WindowContext
from serve.client.machine import MachineWatch, processor_facts
from serve.connection import client_of

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
_TIMEOUT = httpx.Timeout(300.0, connect=10.0)
_SETTLE_SECONDS, _SETTLE_STEP = 2.0, 0.02


@dataclass
class Capture:
    """The open window. Its methods may be called from several threads at once."""

    context: WindowContext
    client: httpx.Client
    exchanges: list[Exchange] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)

    def complete(self, identifier: str, **body: Any) -> Exchange:
        """One completion. An HTTP error or a broken connection is evidence too, never an exception."""
        request = completion_body(self.context, body)
        if not request.get("stream"):
            return self.ask(identifier, COMPLETIONS, **body)
        exchange = _stream(self.client, identifier, request)
        self.exchanges.append(exchange)
        return exchange

    def ask(self, identifier: str, path: str, **body: Any) -> Exchange:
        """One request that is not streamed, to any of the engine's paths."""
        exchange = _post(self.client, identifier, completion_body(self.context, body), path)
        self.exchanges.append(exchange)
        return exchange

    def complete_all(self, bodies: Sequence[tuple[str, dict[str, Any]]]) -> None:
        """Completions in flight at once, one thread each."""
        with ThreadPoolExecutor(max_workers=len(bodies)) as pool:
            for future in [pool.submit(self.complete, identifier, **body) for identifier, body in bodies]:
                future.result()

    def call(self, method: str, arguments: dict[str, Any]) -> tuple[Any, ...]:
        """A witness call, recorded with each rank's answer. Raises SeatError where the witness refuses it."""
        at_ns = time.monotonic_ns()
        results = tuple(self.context.boot.call(method, arguments))
        self.calls.append(Call(method=method, arguments=arguments, results=results, at_ns=at_ns))
        return results

    def switch(self, variant: str, ranks: Sequence[int] | None = None) -> None:
        """Switch the variant on all ranks or some, while nothing is in flight."""
        self.call("switch", {"variant": variant, "ranks": None if ranks is None else list(ranks)})


def connect(context: WindowContext) -> httpx.Client:
    """A client of the context's engine; nothing of the host's proxy settings reaches it."""
    return client_of(context.boot.base_url, _TIMEOUT)


def completion_body(context: WindowContext, body: dict[str, Any]) -> dict[str, Any]:
    """The request with the seat's own options; greedy unless it says otherwise."""
    return {"model": context.manifest.served_name, "temperature": 0} | context.manifest.request_options | body


def record(
    context: WindowContext,
    collect: Callable[[Capture], None],
    *,
    material: dict[str, JsonValue],
    facts: dict[str, JsonValue] | None = None,
) -> Evidence:
    """Everything ``collect`` did, between two readings of the counters. Raises SeatError when the engine is gone."""
    with connect(context) as client:
        capture = Capture(context, client)
        metrics_before = _metrics(client)
        counters_before = context.boot.counters()
        opened_at = now()
        with MachineWatch(context.boot.record.pid) as machine:
            opened_ns = time.monotonic_ns()
            collect(capture)
            closed_ns = time.monotonic_ns()
        counters_after = context.boot.counters()
        metrics_after = _metrics(client)
    return Evidence(
        window=context.window.id,
        boot=context.boot.record.id,
        instrument=context.window.instrument,
        variant=context.variant,
        opened_at=opened_at,
        opened_ns=opened_ns,
        closed_ns=closed_ns,
        exchanges=tuple(capture.exchanges),
        calls=tuple(capture.calls),
        counters_before=counters_before,
        counters_after=counters_after,
        metrics_before=metrics_before,
        metrics_after=metrics_after,
        machine=tuple(machine.states),
        material={**material, DRAWN: context.drawn} if context.drawn else material,
        facts={"limits": context.manifest.limits.model_dump(mode="json"), **processor_facts(), **(facts or {})},
    )


def _metrics(client: httpx.Client) -> str:
    """The metrics text once it has stopped moving: an engine publishes the last step's counts a little late."""
    last, deadline = "", time.monotonic() + _SETTLE_SECONDS
    while True:
        try:
            text = client.get("/metrics").raise_for_status().text
        except httpx.HTTPError as error:
            raise SeatError("the engine's metrics cannot be read", where="/metrics", found=str(error)) from error
        moving = "\n".join(line for line in text.splitlines() if line.startswith("vllm:"))
        if moving == last or time.monotonic() > deadline:
            return text
        last = moving
        time.sleep(_SETTLE_STEP)


def _post(client: httpx.Client, identifier: str, request: dict[str, Any], path: str = COMPLETIONS) -> Exchange:
    sent = time.monotonic_ns()
    try:
        answer = client.post(path, json=request)
        status, body = answer.status_code, _json(answer.text)
    except httpx.HTTPError as error:
        status, body = 0, {"transport_error": f"{type(error).__name__}: {error}"}
    return _exchange(identifier, request, status, sent, path=path, body=body)


def _stream(client: httpx.Client, identifier: str, request: dict[str, Any]) -> Exchange:
    sent = time.monotonic_ns()
    status, body = 0, None
    events: list[tuple[int, str]] = []
    try:
        with client.stream("POST", COMPLETIONS, json=request) as answer:
            status = answer.status_code
            if status != httpx.codes.OK:
                body = _json(answer.read().decode(errors="replace"))
            else:
                lines = (line for line in answer.iter_lines() if line.startswith("data:"))
                events.extend((_whole_microseconds(), line[5:].strip()) for line in lines)
    except httpx.HTTPError as error:
        body = {"transport_error": f"{type(error).__name__}: {error}"}
    return _exchange(identifier, request, status, sent, events=tuple(events), body=body)


def _whole_microseconds() -> int:
    """Monotonic ns without the digits that say nothing of a socket's events and fill the committed evidence."""
    return time.monotonic_ns() // 1000 * 1000


def _exchange(
    identifier: str, request: dict[str, Any], status: int, sent: int, path: str = COMPLETIONS, **answer: Any
) -> Exchange:
    return Exchange(
        id=identifier,
        path=path,
        request=request,
        status=status,
        sent_ns=sent,
        done_ns=time.monotonic_ns(),
        **answer,
    )


def _json(text: str) -> JsonValue:
    """The decoded body, or the text itself where it is no JSON."""
    try:
        value: JsonValue = json.loads(text)
    except ValueError:
        return text
    return value
