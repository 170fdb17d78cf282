"""The ranks of the fake engine: one child process each, which counts what it was told to run, as a plugin would."""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import signal
from collections import Counter
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any

from serve.adapters.fake_model import BEHAVIOURS, EXPERTS, Behaviour, RankState
from serve.adapters.fake_trace import Recorder
from serve.witness.mark import print_mark

LAYERS = ("model.layers.1.mlp.experts", "model.layers.2.mlp.experts")
MAX_ROWS = 64
_WIDE = 65
_SLOWER = 1.2
_PR_SET_PDEATHSIG = 1


class RankError(Exception):
    """The engine cannot go on: strict does not allow what a variant did, or a rank is gone."""


class Rank:
    """One rank's variant and counters."""

    def __init__(
        self, rank: int, libraries: dict[str, str], variant: str, strict: int, *, allowed: list[str], ranks: int
    ) -> None:
        self.profiler = Recorder(rank, ranks)
        self.rank, self.libraries, self.variant, self.strict, self.allowed = rank, libraries, variant, strict, allowed
        self.expert: int | None = None
        self.factor = 1.0
        self.single = 0
        """Steps of one row since the last one of more."""
        self.launches: Counter[tuple[str, int]] = Counter()
        self.own: Counter[tuple[str, int]] = Counter()
        self.declined: Counter[tuple[str, str, int]] = Counter()
        for name in libraries:
            if self.behaviour(name).prewarms:
                self.launches[name, 1] += 1
                self.own[name, 1] += 1

    def behaviour(self, variant: str) -> Behaviour:
        stem = "incumbent" if variant == "incumbent" else self.libraries[variant].rsplit("/", 1)[-1].split(".")[0]
        return BEHAVIOURS[stem]

    def decline(self, rows: int) -> str:
        """Typed reason for which the switched-on variant leaves these rows to the incumbent, or nothing."""
        if self.variant.startswith("incumbent"):
            return ""
        behaviour = self.behaviour(self.variant)
        if behaviour.only_rank not in (None, self.rank):
            return "rows-above-limit" if rows > MAX_ROWS else ""
        if behaviour.declines and rows <= behaviour.declines_up_to:
            return behaviour.declines
        return "rows-above-limit" if rows > MAX_ROWS and behaviour.declines_up_to > MAX_ROWS else ""

    def step(self, rows: int, annotation: str = "") -> dict[str, Any]:
        """Run one step of ``rows`` rows: what this rank contributes, or why strict refuses."""
        counted = min(rows, _WIDE)
        reason = self.decline(rows)
        if reason:
            self.declined[self.variant, reason, counted] += 1
            if self.strict == 2 and reason not in self.allowed:
                return {
                    "refused": f"carve strict 2: variant {self.variant} declined on rank {self.rank}, "
                    f"layer {LAYERS[0]}, rows {rows}: {reason}"
                }
        ran = "incumbent" if reason else self.variant
        self.launches[ran, counted] += 1
        if ran == self.variant and not ran.startswith("incumbent"):
            self.own[ran, counted] += 1
        behaviour = self.behaviour(ran)
        self.single = self.single + 1 if rows == 1 else 0
        zero = behaviour.zero or self.single > behaviour.idle_after
        if self.profiler.running:
            slower = _SLOWER if behaviour.slow_rank == self.rank else 1.0
            self.profiler.step(annotation, ran, len(LAYERS), round(behaviour.step_ms * 1e6), slower)
        return {
            "step_ms": behaviour.step_ms,
            "state": RankState(behaviour.shift, zero, self.expert, self.factor),
        }

    def counters(self) -> dict[str, Any]:
        """``RankCounters`` as JSON."""
        return {
            "rank": self.rank,
            "pid": os.getpid(),
            "witness": _rows(self.launches),
            "candidate": _rows(self.own),
            "declines": [
                {
                    "variant": variant,
                    "layer": layer,
                    "reason": reason,
                    "count": sum(self._declined(variant, reason).values()),
                    "rows": sorted(self._declined(variant, reason).items()),
                }
                for layer in LAYERS
                for variant, reason in sorted({(variant, reason) for variant, reason, _ in self.declined})
            ],
        }

    def _declined(self, variant: str, reason: str) -> dict[int, int]:
        return {rows: count for (name, why, rows), count in self.declined.items() if (name, why) == (variant, reason)}

    def answer(self, method: str, arguments: dict[str, Any]) -> Any:
        """One witness call. Raises ValueError for what a plugin would refuse."""
        if method == "counters":
            return self.counters()
        if method == "identity":
            return {
                "rank": self.rank,
                "pid": os.getpid(),
                "libraries": {},
                "trees": {},
                "weights": arguments["weights"],
                "devices": [],
            }
        if method == "switch":
            ranks = arguments.get("ranks")
            if ranks is None or self.rank in ranks:
                variant = str(arguments["variant"])
                if variant != "incumbent" and variant not in self.libraries:
                    raise ValueError(f"variant {variant} is not loaded: {sorted(self.libraries)}")
                self.variant = variant
            return {"rank": self.rank, "variant": self.variant}
        if method == "perturb":
            if arguments["rank"] == self.rank:
                self.expert, self.factor = int(arguments["expert"]) % EXPERTS, float(arguments["factor"])
            return {"rank": self.rank}
        if method == "start-profile":
            self.profiler.start()
            return {"rank": self.rank}
        if method == "stop-profile":
            self.profiler.stop(Path(arguments["folder"]))
            return {"rank": self.rank}
        if method == "mark":
            print_mark(str(arguments["text"]))
            return {"rank": self.rank}
        if method == "unperturb":
            self.expert, self.factor = None, 1.0
            return {"rank": self.rank}
        raise ValueError(f"unknown method {method}")


def _rows(counter: Counter[tuple[str, int]]) -> list[dict[str, Any]]:
    return [
        {
            "op": "routed_experts",
            "variant": variant,
            "layer": layer,
            "launches": sum(count for (name, _), count in counter.items() if name == variant),
            "rows": sorted((rows, count) for (name, rows), count in counter.items() if name == variant),
        }
        for layer in LAYERS
        for variant in sorted({name for name, _ in counter})
    ]


def _serve(rank: Rank, channel: Connection, parent: int) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if os.getppid() != parent:
        return
    while True:
        try:
            method, argument = channel.recv()
        except EOFError:
            return
        if method == "exit":
            return
        try:
            channel.send(rank.step(*argument) if method == "step" else {"result": rank.answer(method, argument)})
        except (ValueError, KeyError, TypeError) as error:
            channel.send({"error": str(error)})


class Ranks:
    """The child processes and the shared memory they hold. Not thread-safe: the engine's lock guards it."""

    def __init__(
        self, *, count: int, libraries: dict[str, str], variant: str, strict: int, allowed: list[str], name: str
    ) -> None:
        context = multiprocessing.get_context("fork")
        self.memory = SharedMemory(name=name, create=True, size=1 << 16)
        self._channels: list[Connection] = []
        self._processes: list[BaseProcess] = []
        for index in range(count):
            ours, theirs = context.Pipe()
            rank = Rank(index, libraries, variant, strict, allowed=allowed, ranks=count)
            process = context.Process(target=_serve, args=(rank, theirs, os.getpid()), daemon=True)
            process.start()
            theirs.close()
            self._channels.append(ours)
            self._processes.append(process)

    def __len__(self) -> int:
        return len(self._channels)

    def _ask(self, method: str, argument: Any) -> list[dict[str, Any]]:
        try:
            for channel in self._channels:
                channel.send((method, argument))
            return [channel.recv() for channel in self._channels]
        except (OSError, EOFError) as error:
            raise RankError(f"a rank is gone: {error!r}") from error

    def step(self, rows: int, annotation: str = "") -> list[dict[str, Any]]:
        """Every rank's answer to one step. Raises RankError where strict refuses or a rank is gone."""
        answers = self._ask("step", (rows, annotation))
        for answer in answers:
            if "refused" in answer:
                raise RankError(answer["refused"])
        return answers

    def call(self, method: str, arguments: dict[str, Any]) -> list[Any]:
        """Every rank's answer to a witness call. Raises ValueError where a rank refuses it."""
        answers = self._ask(method, arguments)
        for answer in answers:
            if "error" in answer:
                raise ValueError(answer["error"])
        return [answer["result"] for answer in answers]

    def close(self) -> None:
        """End the children and remove the shared memory."""
        for channel in self._channels:
            with contextlib.suppress(OSError):
                channel.send(("exit", None))
        for process in self._processes:
            process.join(1.0)
            if process.is_alive():
                process.kill()
        self.memory.close()
        self.memory.unlink()
