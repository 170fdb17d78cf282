"""The ``attach`` adapter: a server that somebody else started, looked at from outside.

Nothing is started, switched or stopped, so what is measured on it is labelled *attached* and only ever descriptive.
Where the server carries our witness its answers are read too; without one no engagement is counted.
"""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass
from typing import Any

import httpx
from pydantic import JsonValue

from runner.boots import new_record
from runner.errors import InputError, SeatError
from runner.model.boot import BootRecord, Label
from runner.model.evidence import RankCounters
from runner.model.seat import SeatManifest
from serve.adapters.booted import OURS, REQUEST_TIMEOUT, BootedEngine
from serve.adapters.engine_command import arguments_of
from serve.connection import client_of
from serve.seat import BootRequest

_CACHE = re.compile(r"^vllm:cache_config_info\{(.*)\} 1(?:\.0)?$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')
_WITNESSED = "witnessed"
_READS = ("counters", "identity", "resolved")


@dataclass
class Unowned:
    """``serve.adapters.booted.Running`` for what is not ours: it cannot be ended, and its output is not seen."""

    def poll(self) -> int | None:
        """Nobody knows."""
        return None

    def text(self) -> str:
        """Nothing of it is seen."""
        return ""

    def stop(self) -> tuple[str, ...]:
        """It goes on; nothing of ours is left."""
        return ()


class AttachedEngine(BootedEngine):
    """A server that is only read."""

    @property
    def witnessed(self) -> bool:
        """Whether our witness answers in it."""
        return bool(self.record.resolved.get(_WITNESSED))

    def call(self, method: str, arguments: dict[str, Any] | None = None) -> list[Any]:
        """Only what reads. Raises SeatError for a call that would change what is not ours."""
        if method not in _READS:
            raise SeatError(
                "a server that is not ours is only read", where=self.base_url, expected=", ".join(_READS), found=method
            )
        return super().call(method, arguments)

    def logs(self) -> str:
        """Nothing: what it prints goes elsewhere."""
        return self.process.text()

    def counters(self) -> tuple[RankCounters, ...]:
        """Counters of its witness; none where it carries none."""
        return super().counters() if self.witnessed else ()

    def switch(self, variant: str, ranks: tuple[int, ...] | None = None) -> None:
        """Only what is on already can be asked for. Raises SeatError."""
        stands = self.record.resolved.get("variant", variant)
        if variant != stands:
            raise SeatError(
                "a server that is not ours is never switched", where=self.base_url, expected=str(stands), found=variant
            )


class AttachSeat:
    """Connects to a running server."""

    def boot(self, request: BootRequest) -> AttachedEngine:
        """Connect and read back. Raises SeatError where no server of the manifest's model answers."""
        manifest = request.manifest
        if manifest.attached is None:
            raise InputError("the seat names no server", where=manifest.name, expected="attached: url")
        if request.planned.libraries or request.planned.arguments or request.planned.product:
            raise SeatError(
                "an attached server loads nothing",
                where=request.planned.id,
                expected="a gate order over what stands",
                found=", ".join((*request.planned.libraries, *request.planned.arguments)) or "a product",
            )
        url, started = manifest.attached.url, time.monotonic()
        asked = {name: value for name, value in arguments_of(request).items() if value is not None}
        record = new_record(request.planned.id, label="attached", pid=os.getpid(), requested=asked)
        boot = AttachedEngine(record, url, Unowned(), started)
        with boot.ended_on_failure():
            boot.record = _read_back(boot, manifest)
        return boot


def absent(manifest: SeatManifest) -> tuple[str, ...]:
    """The server that does not answer, in words; empty where it does."""
    url = manifest.attached.url if manifest.attached else ""
    try:
        with client_of(url, REQUEST_TIMEOUT) as client:
            client.get("/health").raise_for_status()
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return (f"no server answers on {url or 'no address'}: {error}",)
    return ()


def _read_back(boot: AttachedEngine, manifest: SeatManifest) -> BootRecord:
    """What the server says of itself over its own routes, and what its witness says where it carries one."""
    model, version = _served(boot, manifest.served_name), _ask(boot, "GET", "/version")
    outside: dict[str, JsonValue] = {"served_model_name": model["id"], "max_model_len": model["max_model_len"]}
    outside |= _cache(_ask(boot, "GET", "/metrics").text)
    engine = {"name": "unknown", "version": ""}
    if version.status_code == httpx.codes.OK:
        engine = {"name": "vllm", "version": str(version.json().get("version", ""))}
    witnessed = _ask(boot, "POST", "/carve/call", {"method": "resolved"}).status_code == httpx.codes.OK
    if witnessed:
        boot.identify(_label_of, manifest.tensor_parallel)
        live = boot.record.resolved
        engine = {"name": str(live["distribution"]), "version": str(live.get("distribution_version", ""))}
    tokens = outside.pop("kv_tokens", 0)
    changes = {
        "engine": engine,
        "resolved": {**outside, **boot.record.resolved, _WITNESSED: witnessed},
        "kv_tokens": tokens if isinstance(tokens, int) else 0,
        "ready_ms": round((time.monotonic() - boot.started) * 1000),
    }
    return boot.record.model_copy(update=changes)


def _label_of(resolved: dict[str, Any]) -> Label:
    """The toy is simulated wherever it runs; everything else that somebody else started is attached."""
    return "simulated" if resolved.get("distribution") == OURS else "attached"


def _served(boot: AttachedEngine, name: str) -> dict[str, Any]:
    answer = _ask(boot, "GET", "/v1/models")
    listed = answer.json()["data"] if answer.status_code == httpx.codes.OK else []
    models = {str(one["id"]): one for one in listed}
    if name not in models:
        raise SeatError(
            "another model is served", where=boot.base_url, expected=name, found=", ".join(models) or "none"
        )
    model: dict[str, Any] = models[name]
    return model


def _cache(metrics: str) -> dict[str, JsonValue]:
    """Block size, KV tokens and prefix caching as the server's own metrics name them."""
    line = _CACHE.search(metrics)
    labels = dict(_LABEL.findall(line[1])) if line else {}
    found: dict[str, JsonValue] = {}
    if "enable_prefix_caching" in labels:
        found["enable_prefix_caching"] = labels["enable_prefix_caching"] == "True"
    if labels.get("block_size", "").isdigit():
        found["block_size"] = int(labels["block_size"])
        if labels.get("num_gpu_blocks", "").isdigit():
            found["kv_tokens"] = int(labels["block_size"]) * int(labels["num_gpu_blocks"])
    return found


def _ask(boot: AttachedEngine, method: str, path: str, body: dict[str, str] | None = None) -> httpx.Response:
    """The answer, whatever its status. Raises SeatError where there is none."""
    try:
        return boot.http.request(method, path, json=body)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise SeatError("no server answers", where=f"{boot.base_url}{path}", found=str(error)) from error
