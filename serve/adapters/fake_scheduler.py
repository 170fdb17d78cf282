"""Continuous batching of the fake engine: each step runs one token of each running text and a share of prompts."""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from serve.adapters.fake_model import END, Context, Floats, Model, log_softmax
from serve.adapters.fake_ranks import RankError, Ranks

_PREFILL_MS_PER_ROW = 0.01


@dataclass
class Request:
    """One completion in flight."""

    context: Context
    prompt_length: int
    max_tokens: int
    min_tokens: int
    ignore_eos: bool
    force: list[int] | None
    wants_prompt_logprobs: bool
    results: queue.SimpleQueue[dict[str, Any]] = field(default_factory=queue.SimpleQueue)
    computed: int = 0
    prompt_rows: list[Floats] = field(default_factory=list)
    arrived: float = field(default_factory=time.monotonic)

    @property
    def generated(self) -> int:
        return len(self.context.tokens) - self.prompt_length

    @property
    def reserved(self) -> int:
        return self.prompt_length + self.max_tokens


class Scheduler:
    """The engine loop in a thread of its own; ``lock`` keeps a variant switch between two steps."""

    def __init__(self, model: Model, ranks: Ranks, *, kv_tokens: int, block: int, rows: int, texts: int) -> None:
        """``rows`` and ``texts`` are the most tokens of one step and the most requests that run at once."""
        self.model, self.ranks, self.kv_tokens, self.block = model, ranks, kv_tokens, block
        self.rows, self.texts = rows, texts
        self.lock = threading.Lock()
        self.totals = {"prompt": 0, "generation": 0, "requests": 0}
        self.seconds = {"decode": 0.0, "ttft": 0.0}
        self.failure = ""
        self._waiting: deque[Request] = deque()
        self._running: list[Request] = []
        self._arrived = threading.Event()
        self._counting = threading.Lock()

    def submit(self, request: Request) -> None:
        """Queue one request."""
        self._waiting.append(request)
        self._arrived.set()

    def busy(self) -> bool:
        """Whether a request is in flight."""
        return bool(self._waiting or self._running)

    def usage(self) -> float:
        """Share of the cache that running requests hold."""
        held = sum(-(-len(request.context.tokens) // self.block) * self.block for request in self._running)
        return held / self.kv_tokens

    def loop(self) -> None:
        """Run steps for ever; a strict refusal ends the engine after telling every request."""
        deadline = time.monotonic()
        while not self.failure:
            if not self.busy():
                self._arrived.wait()
                self._arrived.clear()
                deadline = time.monotonic()
                continue
            with self.lock:
                self._admit()
                try:
                    milliseconds = self._step()
                except RankError as error:
                    self.failure, milliseconds = str(error), 0.0
            deadline = max(deadline + milliseconds / 1e3, time.monotonic() - 0.02)
            time.sleep(max(0.0, deadline - time.monotonic()))
        for request in (*self._running, *self._waiting):
            request.results.put({"error": self.failure})

    def _admit(self) -> None:
        while self._waiting and len(self._running) < self.texts:
            held = sum(request.reserved + self.block for request in self._running)
            if self._running and held + self._waiting[0].reserved > self.kv_tokens - self.block:
                return
            self._running.append(self._waiting.popleft())

    def _step(self) -> float:
        """One engine step; its duration in milliseconds."""
        budget, work = self.rows, []
        for request in list(self._running):
            rows = min(len(request.context.tokens) - request.computed, budget)
            if rows > 0:
                work.append((request, rows))
                budget -= rows
        total = sum(rows for _, rows in work)
        answers = self.ranks.step(total, _annotation(work))
        states = [answer["state"] for answer in answers]
        for request, rows in work:
            start, end = request.computed + 1, request.computed + rows + 1
            logits = self.model.logits(request.context, start, end, states)
            request.computed += rows
            if request.wants_prompt_logprobs and start <= request.prompt_length:
                request.prompt_rows.append(log_softmax(logits))
            if request.computed == len(request.context.tokens):
                self._emit(request, logits[-1:])
        step = max(float(answer["step_ms"]) for answer in answers)
        return step + _PREFILL_MS_PER_ROW * max(0, total - len(work))

    def _emit(self, request: Request, logits: Floats) -> None:
        logprobs = log_softmax(logits)[0]
        if request.force is not None and request.generated < len(request.force):
            token = request.force[request.generated]
        else:
            token = int(logits[0].argmax())
            if token == END and request.generated < request.min_tokens:
                token = int(logits[0][:END].argmax())
        request.context.tokens.append(token)
        reason = None
        if token == END and not request.ignore_eos:
            reason = "stop"
        elif request.generated >= request.max_tokens:
            reason = "length"
        if reason:
            self._running.remove(request)
        request.results.put({"token": token, "logprobs": logprobs, "finish_reason": reason})

    def sent(self, request: Request, first: float, last: float) -> None:
        """Count a finished request; ``first`` and ``last`` are when its tokens left (monotonic seconds)."""
        with self._counting:
            self.totals["requests"] += 1
            self.totals["prompt"] += request.prompt_length
            self.totals["generation"] += request.generated
            self.seconds["decode"] += last - first
            self.seconds["ttft"] += first - request.arrived

    def metrics(self, labels: str, configuration: Mapping[str, Any]) -> str:
        """Prometheus text with the family names of vLLM."""
        flat = ",".join(f'{key}="{value}"' for key, value in configuration.items())
        count = self.totals["requests"]
        lines = [
            ("prompt_tokens_total", "counter", "", self.totals["prompt"]),
            ("generation_tokens_total", "counter", "", self.totals["generation"]),
            ("num_preemptions_total", "counter", "", 0),
            ("request_success_total", "counter", "", count),
            ("num_requests_running", "gauge", "", len(self._running)),
            ("num_requests_waiting", "gauge", "", len(self._waiting)),
            ("kv_cache_usage_perc", "gauge", "", self.usage()),
            ("request_decode_time_seconds", "histogram", "_sum", self.seconds["decode"]),
            ("request_decode_time_seconds", "histogram", "_count", count),
            ("time_to_first_token_seconds", "histogram", "_sum", self.seconds["ttft"]),
            ("time_to_first_token_seconds", "histogram", "_count", count),
        ]
        text, named = [], set()
        for family, kind, suffix, value in lines:
            if family not in named:
                text.append(f"# TYPE vllm:{family} {kind}")
                named.add(family)
            text.append(f"vllm:{family}{suffix}{{{labels}}} {float(value)!r}")
        text.append("# TYPE vllm:cache_config_info gauge")
        text.append(f"vllm:cache_config_info{{{flat},{labels}}} 1.0")
        return "\n".join(text) + "\n"


def _annotation(work: list[tuple[Request, int]]) -> str:
    """What vLLM calls a step in a trace: requests and tokens of prefill, requests and tokens of decode."""
    prefill = [rows for request, rows in work if request.computed < request.prompt_length]
    decode = [rows for request, rows in work if request.computed >= request.prompt_length]
    return f"execute_context_{len(prefill)}({sum(prefill)})_generation_{len(decode)}({sum(decode)})"
