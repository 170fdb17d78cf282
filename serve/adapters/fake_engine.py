"""A fake engine: the HTTP of a real one over a toy distribution, with real processes, shared memory and a port.

``python -P -m serve.adapters.fake_engine --port P --configuration JSON``. Everything the runner does can be
exercised in seconds, and what it answers is called *simulated* because this distribution served it.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np

from serve.adapters.fake_model import END, VOCABULARY, Context, Floats, Model
from serve.adapters.fake_ranks import LAYERS, RankError, Ranks
from serve.adapters.fake_scheduler import Request, Scheduler
from serve.witness.environment import read_back

MAX_BODY = 8 << 20
DISTRIBUTION = "dsv4-carve"
"""Whose code answers; the adapter computes the label from it."""


class BadRequest(Exception):
    """HTTP 400 with this message."""


class Engine:
    """The served model, its scheduler and its configuration."""

    def __init__(self, configuration: dict[str, Any], traces: Path) -> None:
        self.configuration, self.traces = configuration, traces
        environment = os.environ
        self.libraries: dict[str, str] = json.loads(environment.get("CARVE_LIBRARIES", "{}"))
        self.strict = int(environment.get("CARVE_STRICT", "0"))
        self.name = str(configuration["served_model_name"])
        self.limit = int(configuration["max_model_len"])
        variant = self.variant = environment.get("CARVE_VARIANT", "incumbent")
        if variant != "incumbent" and variant not in self.libraries:
            raise SystemExit(f"carve: variant {variant} is not ready: no library")
        self.ranks = Ranks(
            count=int(configuration["tensor_parallel_size"]),
            libraries=self.libraries,
            variant=variant,
            strict=self.strict,
            allowed=json.loads(environment.get("CARVE_ALLOWED_DECLINES", "[]")),
            name=f"carve_fake_{os.getpid()}",
        )
        self.scheduler = Scheduler(
            Model(len(self.ranks)),
            self.ranks,
            kv_tokens=int(configuration["kv_cache_tokens"]),
            block=int(configuration["block_size"]),
            rows=int(configuration["max_num_batched_tokens"]),
            texts=int(configuration["max_num_seqs"]),
        )

    def resolved(self) -> dict[str, Any]:
        """The live configuration, flat."""
        own = {"strict": self.strict, "layers": len(LAYERS), "distribution": DISTRIBUTION}
        return self.configuration | own | {"variant": self.variant} | read_back()

    def call(self, method: str, arguments: dict[str, Any]) -> list[Any]:
        """One witness call between two steps. Raises ValueError for an unknown method or bad arguments."""
        if method == "resolved":
            return [self.resolved()] * len(self.ranks)
        if method == "identity":
            arguments = {"weights": str(self.configuration["weights"])}
        with self.scheduler.lock:
            if method == "switch" and self.scheduler.busy():
                raise ValueError("a request is in flight")
            return self.ranks.call(method, arguments)

    def profile(self, method: str) -> None:
        """Start or stop the profiler of every rank."""
        with self.scheduler.lock:
            self.ranks.call(method, {"folder": str(self.traces)})

    def request(self, body: dict[str, Any]) -> Request:
        """The scheduler's request for a completion body. Raises BadRequest."""
        prompt = body.get("prompt")
        tokens = list(prompt.encode()) if isinstance(prompt, str) else prompt
        if not isinstance(tokens, list) or not tokens or not all(_is_token(token) for token in tokens):
            raise BadRequest("prompt must be a text or a list of token ids, and not empty")
        max_tokens = body.get("max_tokens", 16)
        if not isinstance(max_tokens, int) or max_tokens < 1:
            raise BadRequest(f"max_tokens must be at least 1, got {max_tokens}.")
        if len(tokens) + max_tokens > self.limit:
            raise BadRequest(
                f"This model's maximum context length is {self.limit} tokens. However, you requested {max_tokens} "
                f"output tokens and your prompt contains at least {len(tokens)} input tokens, for a total of at least "
                f"{len(tokens) + max_tokens} tokens. Please reduce the length of the input prompt or the number of "
                "requested output tokens."
            )
        force = (body.get("vllm_xargs") or {}).get("force_ids")
        if force is not None and not (isinstance(force, list) and all(_is_token(token) for token in force)):
            raise BadRequest("force_ids must be a list of ints")
        if body.get("stream") and body.get("prompt_logprobs") is not None:
            raise BadRequest("`prompt_logprobs` are not available when `stream=True`.")
        return Request(
            context=Context(list(tokens)),
            prompt_length=len(tokens),
            max_tokens=max_tokens,
            min_tokens=int(body.get("min_tokens", 0)),
            ignore_eos=bool(body.get("ignore_eos", False)),
            force=force,
            wants_prompt_logprobs=body.get("prompt_logprobs") is not None,
        )


def _is_token(token: object) -> bool:
    return isinstance(token, int) and not isinstance(token, bool) and 0 <= token < VOCABULARY


def _text(tokens: list[int]) -> str:
    return bytes(token for token in tokens if token != END).decode(errors="replace")


def _top(logprobs: Floats, count: int, token: int) -> dict[str, dict[str, Any]]:
    """The ``count`` most likely tokens and ``token`` itself, as vLLM's ``prompt_logprobs`` entries."""
    order = np.argsort(-logprobs, kind="stable")[:count].tolist()
    entries = {}
    for entry in dict.fromkeys([token, *order]):
        rank = int((logprobs > logprobs[entry]).sum()) + 1
        entries[str(entry)] = {
            "logprob": max(float(logprobs[entry]), -9999.0),
            "rank": rank,
            "decoded_token": _text([entry]),
        }
    return entries


def _logprobs(steps: list[dict[str, Any]], count: int) -> dict[str, Any]:
    """The completion endpoint's ``logprobs`` object; names are ``token_id:N`` so that no two tokens share one."""
    tops = []
    for step in steps:
        order = np.argsort(-step["logprobs"], kind="stable")[:count].tolist()
        named = dict.fromkeys([step["token"], *order])
        tops.append({f"token_id:{token}": float(step["logprobs"][token]) for token in named})
    return {
        "text_offset": [0] * len(steps),
        "token_logprobs": [float(step["logprobs"][step["token"]]) for step in steps],
        "tokens": [f"token_id:{step['token']}" for step in steps],
        "top_logprobs": tops,
    }


class Handler(BaseHTTPRequestHandler):
    """Routes."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # a token leaves when it is made
    engine: Engine

    def log_message(self, format: str, *arguments: Any) -> None:
        """No access log."""

    def _json(self, status: int, value: Any) -> None:
        self._send(status, json.dumps(value).encode(), "application/json")

    def _send(self, status: int, data: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        """Health, metrics and models."""
        engine = self.engine
        if self.path == "/health":
            self._send(503 if engine.scheduler.failure else 200, b"", "text/plain")
        elif self.path == "/metrics":
            labels = f'engine="0",model_name="{engine.name}"'
            cache = {
                "block_size": engine.configuration["block_size"],
                "num_gpu_blocks": engine.scheduler.kv_tokens // engine.scheduler.block,
                "enable_prefix_caching": engine.configuration["enable_prefix_caching"],
            }
            self._send(200, engine.scheduler.metrics(labels, cache).encode(), "text/plain; version=0.0.4")
        elif self.path == "/v1/models":
            model = {"id": engine.name, "object": "model", "max_model_len": engine.limit, "root": "fake"}
            self._json(200, {"object": "list", "data": [model]})
        else:
            self._json(404, {"detail": "Not Found"})

    def do_POST(self) -> None:
        """Completions, tokens and witness calls."""
        try:
            length = int(self.headers.get("Content-Length", "0"))
            body = json.loads(self.rfile.read(min(length, MAX_BODY)) or "{}")
            if not isinstance(body, dict):
                raise BadRequest("the body must be a JSON object")
            if self.path == "/v1/completions":
                self._complete(body)
            elif self.path == "/tokenize":
                tokens = list(str(body.get("prompt", "")).encode())
                self._json(200, {"tokens": tokens, "count": len(tokens), "max_model_len": self.engine.limit})
            elif self.path in ("/start_profile", "/stop_profile"):
                self.engine.profile(self.path.strip("/").replace("_", "-"))
                self._json(200, None)
            elif self.path == "/carve/call":
                self._witness(body)
            else:
                self._json(404, {"detail": "Not Found"})
        except (BadRequest, json.JSONDecodeError) as error:
            self._json(400, {"error": {"message": str(error), "type": "BadRequestError", "param": None, "code": 400}})

    def _witness(self, body: dict[str, Any]) -> None:
        try:
            results = self.engine.call(str(body.get("method")), dict(body.get("arguments") or {}))
        except (ValueError, KeyError, TypeError, RankError) as error:
            self._json(400, {"error": str(error)})
            return
        self._json(200, {"results": results})

    def _steps(self, request: Request) -> Iterator[dict[str, Any]]:
        first = 0.0
        while True:
            step = request.results.get()
            last = time.monotonic()
            first = first or last
            if "error" in step:
                yield step
                return
            if step["finish_reason"]:
                self.engine.scheduler.sent(request, first, last)
                yield step
                return
            yield step

    def _complete(self, body: dict[str, Any]) -> None:
        engine = self.engine
        if engine.scheduler.failure:
            self._json(500, {"error": {"message": engine.scheduler.failure, "type": "InternalServerError"}})
            return
        request = engine.request(body)
        engine.scheduler.submit(request)
        if body.get("stream"):
            self._stream(body, request)
            return
        steps = list(self._steps(request))
        if "error" in steps[-1]:
            self._json(500, {"error": {"message": steps[-1]["error"], "type": "InternalServerError"}})
            return
        tokens = [step["token"] for step in steps]
        choice: dict[str, Any] = {
            "index": 0,
            "text": _text(tokens),
            "finish_reason": steps[-1]["finish_reason"],
            "stop_reason": None,
            "logprobs": None if body.get("logprobs") is None else _logprobs(steps, int(body["logprobs"])),
            "prompt_logprobs": self._prompt_logprobs(body, request),
        }
        if body.get("return_token_ids"):
            choice |= {"token_ids": tokens, "prompt_token_ids": request.context.tokens[: request.prompt_length]}
        self._json(200, self._envelope([choice], request))

    def _prompt_logprobs(self, body: dict[str, Any], request: Request) -> list[Any] | None:
        if not request.wants_prompt_logprobs:
            return None
        rows = np.concatenate(request.prompt_rows)
        tokens = request.context.tokens[1 : request.prompt_length]
        count = int(body["prompt_logprobs"])
        return [None, *(_top(rows[at], count, token) for at, token in enumerate(tokens))]

    def _envelope(self, choices: list[Any], request: Request | None) -> dict[str, Any]:
        usage = None
        if request is not None:
            prompt, completion = request.prompt_length, request.generated
            usage = {
                "prompt_tokens": prompt,
                "completion_tokens": completion,
                "total_tokens": prompt + completion,
            }
        return {
            "id": "cmpl-fake",
            "object": "text_completion",
            "created": int(time.time()),
            "model": self.engine.name,
            "choices": choices,
            "usage": usage,
        }

    def _stream(self, body: dict[str, Any], request: Request) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for step in self._steps(request):
            if "error" in step:
                self._event({"error": {"message": step["error"], "type": "InternalServerError"}})
                break
            choice: dict[str, Any] = {
                "index": 0,
                "text": _text([step["token"]]),
                "finish_reason": step["finish_reason"],
                "logprobs": None if body.get("logprobs") is None else _logprobs([step], int(body["logprobs"])),
            }
            if body.get("return_token_ids"):
                choice["token_ids"] = [step["token"]]
            self._event(self._envelope([choice], None))
        else:
            if (body.get("stream_options") or {}).get("include_usage"):
                self._event(self._envelope([], request))
        self._chunk(b"data: [DONE]\n\n")
        self.wfile.write(b"0\r\n\r\n")

    def _event(self, value: dict[str, Any]) -> None:
        self._chunk(b"data: " + json.dumps(value).encode() + b"\n\n")

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()


class Server(ThreadingHTTPServer):
    """Quiet about clients that hang up."""

    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no fault of the engine; anything else is told."""
        error = sys.exception() if hasattr(sys, "exception") else sys.exc_info()[1]
        if not isinstance(error, ConnectionError):
            super().handle_error(request, client_address)


def main() -> int:
    """Serve until SIGTERM, or until strict refuses."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--configuration", type=json.loads, required=True)
    parser.add_argument("--traces", type=Path, required=True)
    arguments = parser.parse_args()
    engine = Engine(arguments.configuration, arguments.traces)
    Handler.engine = engine
    server = Server(("127.0.0.1", arguments.port), Handler)
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
    for rank in range(len(engine.ranks)):
        print(f"(Worker_TP{rank}) INFO carve: plugin ready on rank {rank} (simulated)", flush=True)
    print(f"INFO GPU KV cache size: {engine.scheduler.kv_tokens:,} tokens", flush=True)

    def loop() -> None:
        engine.scheduler.loop()
        print(f"ERROR {engine.scheduler.failure}", flush=True)
        time.sleep(0.3)
        server.shutdown()

    threading.Thread(target=loop, daemon=True).start()
    try:
        server.serve_forever(poll_interval=0.05)
    finally:
        engine.ranks.close()
    return 1 if engine.scheduler.failure else 0


if __name__ == "__main__":
    sys.exit(main())
