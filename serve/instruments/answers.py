"""Reading HTTP answers as they were recorded. What is missing or wrong comes back as a fault, in words."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import JsonValue, ValidationError

from runner.errors import EvidenceError
from runner.model.base import Record
from runner.model.evidence import Evidence, Exchange

OK = 200

R = TypeVar("R", bound=Record)


def material(evidence: Evidence, name: str) -> Mapping[str, Any]:
    """A named part of the drawn material. Raises EvidenceError where the driver recorded none."""
    value = evidence.material.get(name)
    if not isinstance(value, dict):
        raise missing(evidence, f"material.{name}")
    return value


def fact(evidence: Evidence, name: str) -> JsonValue:
    """A named fact. Raises EvidenceError where the driver recorded none."""
    if name not in evidence.facts:
        raise missing(evidence, f"facts.{name}")
    return evidence.facts[name]


def whole(evidence: Evidence, kind: type[R]) -> R:
    """All facts as one record. Raises EvidenceError where they are not exactly its fields."""
    try:
        return kind.model_validate(evidence.facts)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise EvidenceError(
            "the evidence is not what this instrument reads",
            where=f"evidence of window {evidence.window}, facts.{field}",
            found=first["msg"],
            next_step="measure the window again",
        ) from error


def missing(evidence: Evidence, field: str) -> EvidenceError:
    """The error for evidence that lacks what the reading needs."""
    return EvidenceError(
        "the evidence lacks what this instrument reads",
        where=f"evidence of window {evidence.window}, {field}",
        next_step="measure the window again",
    )


def error_text(exchange: Exchange) -> str:
    """The engine's own words of a failed exchange, shortened."""
    return f"HTTP {exchange.status}: {json.dumps(exchange.body, ensure_ascii=False)[:200]}"


def choice(exchange: Exchange) -> Mapping[str, Any] | None:
    """``choices[0]`` of an answer that is not streamed; None where there is none."""
    body = exchange.body
    if exchange.status != OK or not isinstance(body, dict) or "error" in body:
        return None
    choices = body.get("choices")
    return choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else None


def usage(exchange: Exchange) -> Mapping[str, Any]:
    """``usage`` of an answer that is not streamed; empty where there is none."""
    found = exchange.body.get("usage") if isinstance(exchange.body, dict) else None
    return found if isinstance(found, dict) else {}


@dataclass(frozen=True)
class Streamed:
    """One streamed answer, read event by event."""

    token_times: tuple[int, ...]
    """Monotonic ns of each token, as often as its event carried tokens."""
    token_ids: tuple[int, ...]
    events: int
    """Events that carried tokens."""
    first_tokens: int
    """Tokens of the first of them."""
    completion_tokens: int | None
    """From ``usage``."""
    finish_reason: str
    faults: tuple[str, ...]


def read_stream(exchange: Exchange) -> Streamed:
    """Server-sent events to token times; an error event, a missing end or a missing ``usage`` is a fault.

    An event may carry several tokens (the engine coalesces), so events are never counted.
    """
    times: list[int] = []
    ids: list[int] = []
    sizes: list[int] = []
    faults: list[str] = []
    tokens, reason, ended = None, "", False
    if exchange.status != OK or exchange.body is not None:
        faults.append(f"{exchange.id}: {error_text(exchange)}")
    for at_ns, data in exchange.events:
        if data == "[DONE]":
            ended = True
            continue
        event = _event(data)
        if event is None or "error" in event:
            faults.append(f"{exchange.id}: an event is an error: {data[:200]}")
            continue
        for part in event.get("choices") or ():
            found = part.get("token_ids") or ()
            ids += found
            times += [at_ns] * len(found)
            sizes += [len(found)] if found else []
            reason = part.get("finish_reason") or reason
        if isinstance(event.get("usage"), dict):
            tokens = event["usage"].get("completion_tokens")
    if not faults and not ended:
        faults.append(f"{exchange.id}: the stream broke off")
    if not faults and tokens is None:
        faults.append(f"{exchange.id}: no usage at the end of the stream")
    first = sizes[0] if sizes else 0
    return Streamed(tuple(times), tuple(ids), len(sizes), first, tokens, reason, tuple(faults))


def _event(data: str) -> dict[str, Any] | None:
    try:
        value = json.loads(data)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
