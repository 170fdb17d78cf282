"""A booted engine seen over HTTP: witness calls, readiness and the final record. Shared by every engine adapter."""

from __future__ import annotations

import json
import re
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import httpx

from runner.errors import SeatError
from runner.model.boot import BootRecord, Label, RankIdentity
from runner.model.evidence import RankCounters
from runner.model.seat import SeatManifest
from serve.connection import client_of, listens
from serve.witness.mark import STREAMS

OURS = "dsv4-carve"
"""This project's own distribution: what it serves is simulated."""

REFUSAL = re.compile(r"carve strict [0-2]: [^'\"\n]*")
"""What the plugin says when strict ends the engine."""

CANARY = "carve: plugin ready on rank {rank} "
"""What the plugin says once on every rank when its first module loads."""

KV_LINE = re.compile(r"(?:GPU|CPU) KV cache size: ([\d,]+) tokens")

_CAUSE = re.compile(r"\b\w*(Error|Exception): \S|Segfault")

REQUEST_TIMEOUT = 120.0
POLL_SECONDS = 0.1
LOG_SECONDS = 60.0
"""For a printed line to arrive."""
HEALTH_SECONDS = 5.0
"""For one answer while an engine starts: on its port somebody else may listen who never answers."""


class Running(Protocol):
    """What an engine runs in: a supervised process, a container, or a server of somebody else's."""

    def poll(self) -> int | None:
        """Exit code once it has ended, else None."""
        ...

    def text(self) -> str:
        """Everything it has printed so far."""
        ...

    def stop(self) -> tuple[str, ...]:
        """End it; what is left of it, in words. Idempotent."""
        ...


@dataclass
class BootedEngine:
    """``serve.seat.Boot`` over something that runs."""

    record: BootRecord
    base_url: str
    process: Running
    started: float
    """Monotonic clock at launch."""
    traces: Path | None = None
    """Folder into which the engine's profiler writes; None where the adapter gives it none."""
    http: httpx.Client = field(init=False)

    def __post_init__(self) -> None:
        self.http = client_of(self.base_url, REQUEST_TIMEOUT)

    def call(self, method: str, arguments: dict[str, Any] | None = None) -> list[Any]:
        """``POST /carve/call``: one answer for each rank. Raises SeatError with the engine's own words."""
        try:
            answer = self.http.post("/carve/call", json={"method": method, "arguments": arguments or {}})
        except httpx.HTTPError as error:
            raise self.gone(str(error)) from error
        if answer.status_code != httpx.codes.OK:
            raise SeatError(f"the witness refused {method!r}", where=self.record.id, found=answer.text[:500])
        results: list[Any] = answer.json()["results"]
        return results

    def counters(self) -> tuple[RankCounters, ...]:
        """Every rank's counters now."""
        return tuple(RankCounters.model_validate_json(json.dumps(rank)) for rank in self.call("counters"))

    def switch(self, variant: str, ranks: tuple[int, ...] | None = None) -> None:
        """Switch the variant on all ranks, or on some, while no request is in flight."""
        self.call("switch", {"variant": variant, "ranks": None if ranks is None else list(ranks)})

    def logs(self) -> str:
        """Everything the engine has printed before this call, however long it is on its way through pipes.

        Raises SeatError where the engine answers and its output does not arrive.
        """
        if self.record.ended != "running":
            return self.process.text()
        mark = f"carve mark {secrets.token_hex(8)}"
        marks = len(self.call("mark", {"text": mark})) * STREAMS
        limit = time.monotonic() + LOG_SECONDS
        while (log := self.process.text()).count(mark) < marks:
            if time.monotonic() > limit:
                raise SeatError("the engine's output does not arrive", where=self.record.id, found=last_words(log, 0))
            time.sleep(POLL_SECONDS)
        return log

    def stop(self) -> BootRecord:
        """End the boot, look for leftovers, and give the final record. Idempotent."""
        if self.record.ended != "running":
            return self.record
        self.http.close()
        code = self.process.poll()
        leftovers = self.process.stop()
        log = self.process.text()
        ended, reason = "stopped", ""
        if refusal := REFUSAL.search(log):
            ended, reason = "refused", refusal[0]
        elif code is not None:
            ended, reason = "died", last_words(log, code)
        seconds = round(time.monotonic() - self.started)
        changes = {"ended": ended, "ended_reason": reason, "leftovers": leftovers, "seconds": seconds}
        self.record = self.record.model_copy(update=changes)
        return self.record

    def gone(self, found: str) -> SeatError:
        """The error for an engine that does not answer, with its own last words where it has ended."""
        code = self.process.poll()
        words = found if code is None else last_words(self.process.text(), code)
        return SeatError("the engine does not answer", where=self.record.id, found=words)

    def come_up(self, manifest: SeatManifest, label: Callable[[dict[str, Any]], Label]) -> None:
        """Wait for readiness and identify what answers; where that fails, end it and raise what was raised."""
        with self.ended_on_failure():
            self.await_ready(manifest.boot_timeout_seconds, manifest.served_name)
            self.identify(label, manifest.tensor_parallel)

    @contextmanager
    def ended_on_failure(self) -> Iterator[None]:
        """Nothing runs on that nobody was given."""
        try:
            yield
        except BaseException:
            self.stop()
            raise

    def await_ready(self, timeout: float, served_name: str) -> None:
        """``/health``, one generated token, then counters that moved on every rank. Raises SeatError."""
        self._await_health(self.started + timeout)
        before = self.counters()
        body = {"model": served_name, "prompt": [1], "max_tokens": 1, "temperature": 0, "ignore_eos": True}
        try:
            answer = self.http.post("/v1/completions", json=body)
        except httpx.HTTPError as error:
            raise self._ended_or(str(error)) from error
        if answer.status_code != httpx.codes.OK:
            raise self._ended_or(answer.text[:500])
        for old, new in zip(before, self.counters(), strict=True):
            if old.witness == new.witness:
                raise SeatError("one token was generated and no counter moved", where=f"rank {new.rank}")

    def identify(self, label: Callable[[dict[str, Any]], Label], ranks: int) -> None:
        """Fill the record with what the live engine says of itself, and with the label of what answered."""
        resolved = self.call("resolved")[0]
        identities = tuple(RankIdentity.model_validate_json(json.dumps(rank)) for rank in self.call("identity"))
        log = self.logs()
        changes = {
            "label": label(resolved),
            "ready_ms": round((time.monotonic() - self.started) * 1000),
            "ranks": identities,
            "resolved": resolved,
            "kv_tokens": kv_tokens_in(log),
            "canary": all(CANARY.format(rank=rank) in log for rank in range(ranks)),
        }
        self.record = self.record.model_copy(update=changes)

    def _await_health(self, deadline: float) -> None:
        while True:
            if (code := self.process.poll()) is not None:
                raise self._ended_or(f"exit code {code}")
            try:
                if (
                    listens(self.base_url)
                    and self.http.get("/health", timeout=HEALTH_SECONDS).status_code == httpx.codes.OK
                ):
                    return
            except httpx.TransportError:
                pass
            if time.monotonic() > deadline:
                raise SeatError(
                    "the engine is not healthy in time", where=self.record.id, found=last_words(self.process.text(), 0)
                )
            time.sleep(POLL_SECONDS)

    def _ended_or(self, found: str) -> SeatError:
        """What a failed start or first token means: a refusal in the engine's own words, or its last words."""
        limit = time.monotonic() + LOG_SECONDS
        while self.process.poll() is None and time.monotonic() < limit and not REFUSAL.search(self.process.text()):
            time.sleep(POLL_SECONDS)
        log, code = self.process.text(), self.process.poll()
        if refusal := REFUSAL.search(log):
            return SeatError("the engine refused", where=self.record.id, found=refusal[0])
        words = found if code is None else last_words(log, code)
        return SeatError("the engine ended at start", where=self.record.id, found=words)


def label_of(resolved: Mapping[str, Any], expected: Mapping[str, str]) -> Label:
    """The label of what answered, from what the live engine says it is; ``expected`` is what was started, by name.

    Raises SeatError where another engine answers; this project's own is simulated wherever it does.
    """
    if resolved.get("distribution") == OURS:
        return "simulated"
    found = {name: str(resolved.get(name, "unknown")) for name in expected}
    if found != dict(expected):
        wanted, answered = (", ".join(f"{name} {value}" for name, value in each.items()) for each in (expected, found))
        raise SeatError("another engine answers than the one that was started", expected=wanted, found=answered)
    return "cpu" if resolved.get("device_type") == "cpu" else "real"


def kv_tokens_in(log: str) -> int:
    """Tokens of the KV pool as the engine's log names them; 0 where it does not."""
    tokens = KV_LINE.search(log)
    return int(tokens[1].replace(",", "")) if tokens else 0


def last_words(log: str, code: int) -> str:
    """The lines that say why: the last error the engine named, and its last lines."""
    lines = [line for line in log.splitlines() if line.strip()]
    causes = [line for line in lines if _CAUSE.search(line) and " WARNING " not in line and "root cause" not in line]
    chosen = causes[-1:] + lines[-3:]
    return "\n".join(dict.fromkeys(chosen)) or f"no output, exit code {code}"
