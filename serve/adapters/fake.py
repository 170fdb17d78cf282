"""The fake seat: real processes, a real port and shared memory, a toy distribution. What it measures is *simulated*."""

from __future__ import annotations

import importlib.metadata
import json
import re
import secrets
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from runner.clock import now
from runner.digest import sha256_bytes, sha256_json
from runner.errors import SeatError
from runner.model.boot import BootRecord, Label, RankIdentity
from runner.model.evidence import RankCounters
from serve.adapters.supervisor import Supervised, free_port
from serve.seat import BootRequest

_OURS = "dsv4-carve"
_KV_LINE = re.compile(r"(?:GPU|CPU) KV cache size: ([\d,]+) tokens")
_REFUSAL = "carve strict"
_REQUEST_TIMEOUT = 30.0


def variant_library(variant: str) -> Path:
    """A variant of the fake seat is built in: its library is its name."""
    return Path(variant)


@dataclass
class FakeBoot:
    """A running fake engine."""

    record: BootRecord
    base_url: str
    process: Supervised
    started: float

    def call(self, method: str, arguments: dict[str, Any] | None = None) -> list[Any]:
        """``POST /carve/call``. Raises SeatError with the engine's own words."""
        try:
            answer = httpx.post(
                f"{self.base_url}/carve/call",
                json={"method": method, "arguments": arguments or {}},
                timeout=_REQUEST_TIMEOUT,
            )
        except httpx.HTTPError as error:
            raise self._gone(str(error)) from None
        if answer.status_code != httpx.codes.OK:
            raise SeatError(f"the witness refused {method!r}", where=self.record.id, found=answer.text[:500])
        results: list[Any] = answer.json()["results"]
        return results

    def counters(self) -> tuple[RankCounters, ...]:
        """Every rank's counters now."""
        return tuple(RankCounters.model_validate_json(json.dumps(rank)) for rank in self.call("counters"))

    def switch(self, variant: str, ranks: tuple[int, ...] | None = None) -> None:
        """Switch the variant on all ranks, or on some."""
        self.call("switch", {"variant": variant, "ranks": None if ranks is None else list(ranks)})

    def logs(self) -> str:
        """Everything the engine has printed."""
        return self.process.text()

    def stop(self) -> BootRecord:
        """End the boot and give the final record."""
        code = self.process.poll()
        leftovers = self.process.stop()
        words = _last_words(self.logs(), code or 0)
        if _REFUSAL in words:
            ended, reason = "refused", words
        elif code is not None:
            ended, reason = "died", words
        else:
            ended, reason = "stopped", ""
        self.record = self.record.model_copy(
            update={
                "ended": ended,
                "ended_reason": reason,
                "leftovers": leftovers,
                "seconds": round(time.monotonic() - self.started),
            }
        )
        return self.record

    def _gone(self, found: str) -> SeatError:
        code = self.process.poll()
        words = found if code is None else _last_words(self.logs(), code)
        return SeatError("the engine does not answer", where=self.record.id, found=words)


class FakeSeat:
    """Starts fake engines."""

    def boot(self, request: BootRequest) -> FakeBoot:
        """Start and wait for readiness. Raises SeatError with the engine's last words."""
        manifest, planned = request.manifest, request.planned
        started, started_at = time.monotonic(), now()
        requested = manifest.arguments | planned.arguments
        configuration = requested | {
            "served_model_name": manifest.served_name,
            "tensor_parallel_size": manifest.tensor_parallel,
            "max_model_len": manifest.max_model_len,
            "weights": sha256_bytes(b"toy distribution 20"),
        }
        port = free_port()
        environment = manifest.environment | {
            "CARVE_LIBRARIES": json.dumps({name: str(path) for name, path in request.libraries.items()}),
            "CARVE_VARIANT": request.variant,
            "CARVE_STRICT": str(planned.strict),
            "CARVE_ALLOWED_DECLINES": json.dumps(list(request.allowed_declines)),
        }
        argv = [sys.executable, "-P", "-m", "serve.adapters.fake_engine", "--port", str(port)]
        process = Supervised.start(
            [*argv, "--configuration", json.dumps(configuration)],
            environment,
            request.folder,
            port=port,
        )
        identifier = f"{planned.id}-{secrets.token_hex(4)}"
        record = BootRecord(
            id=identifier,
            planned=planned.id,
            label="simulated",
            engine=_distribution(),
            started_at=started_at,
            ready_ms=0,
            pid=process.pid,
            ranks=(),
            requested=requested | {"strict": planned.strict},
            resolved={},
            kv_tokens=0,
            canary=False,
            ended="running",
        )
        boot = FakeBoot(record, f"http://127.0.0.1:{port}", process, started)
        try:
            _await_ready(boot, started + manifest.boot_timeout_seconds, manifest.served_name)
            boot.record = _identified(boot, manifest.tensor_parallel, round((time.monotonic() - started) * 1000))
        except BaseException:
            process.stop()
            raise
        return boot


def _await_ready(boot: FakeBoot, deadline: float, served_name: str) -> None:
    """``/health``, one generated token, then counters that moved."""
    with httpx.Client(base_url=boot.base_url, timeout=_REQUEST_TIMEOUT) as client:
        while True:
            if (code := boot.process.poll()) is not None:
                raise SeatError("the engine ended at start", where=boot.record.id, found=_last_words(boot.logs(), code))
            try:
                if client.get("/health").status_code == httpx.codes.OK:
                    break
            except httpx.TransportError:
                pass
            if time.monotonic() > deadline:
                raise SeatError("the engine is not healthy in time", where=boot.record.id, found=boot.logs()[-500:])
            time.sleep(0.02)
        before = boot.counters()
        answer = client.post("/v1/completions", json={"model": served_name, "prompt": "1", "max_tokens": 1})
        if answer.status_code != httpx.codes.OK:
            raise SeatError("the engine cannot generate", where=boot.record.id, found=answer.text[:500])
        if boot.counters() == before:
            raise SeatError("one token was generated and no counter moved", where=boot.record.id)


def _identified(boot: FakeBoot, ranks: int, ready_ms: int) -> BootRecord:
    resolved = boot.call("resolved")[0]
    identities = tuple(RankIdentity.model_validate_json(json.dumps(rank)) for rank in boot.call("identity"))
    log = boot.logs()
    tokens = _KV_LINE.search(log)
    return boot.record.model_copy(
        update={
            "label": label_of(str(resolved.get("distribution", ""))),
            "ready_ms": ready_ms,
            "ranks": identities,
            "resolved": resolved,
            "kv_tokens": int(tokens[1].replace(",", "")) if tokens else 0,
            "canary": all(f"carve: plugin ready on rank {rank}" in log for rank in range(ranks)),
        }
    )


def label_of(distribution: str) -> Label:
    """The label of what answered. Raises SeatError where it is not this project's toy."""
    if distribution != _OURS:
        raise SeatError("another engine answers on the fake seat's port", expected=_OURS, found=distribution)
    return "simulated"


def _distribution() -> dict[str, str]:
    installed = importlib.metadata.distribution(_OURS)
    return {
        "name": _OURS,
        "version": installed.version,
        "record": sha256_json(sorted(str(file) for file in installed.files or ())),
    }


def _last_words(log: str, code: int) -> str:
    lines = [line for line in log.splitlines() if line.strip()]
    return "\n".join(lines[-5:]) or f"no output, exit code {code}"
