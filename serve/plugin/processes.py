"""Processes of the engine: none outlives its parent, and workers may be forked instead of spawned."""

from __future__ import annotations

import os
import signal
from functools import wraps
from pathlib import Path
from typing import Any

from serve.adapters.watchdog import PR_SET_PDEATHSIG, prctl

_MAIN = "CARVE_ENGINE_PID"


def follow_parent() -> None:
    """SIGTERM to this process when its parent dies, in every process below the first that registered.

    The first one is the API server; its supervisor looks after it.
    """
    if os.environ.setdefault(_MAIN, str(os.getpid())) != str(os.getpid()):
        _die_with_parent()
    os.register_at_fork(after_in_child=_die_with_parent)


def fork_workers_if_asked() -> None:
    """With ``CARVE_FORK=1``, workers are forked from a process that has imported vLLM already (seconds a start).

    vLLM's CPU platform forces ``spawn`` while it checks its configuration; this takes it back just afterwards.
    """
    if os.environ.get("CARVE_FORK") != "1":
        return
    from vllm.platforms import cpu  # noqa: PLC0415 (only where it is asked for)

    check = cpu.CpuPlatform.check_and_update_config.__func__
    if getattr(check, "carve_fork", False):
        return

    @wraps(check)
    def check_then_fork(cls: type, *arguments: Any, **named: Any) -> None:
        check(cls, *arguments, **named)
        os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = "fork"

    check_then_fork.carve_fork = True  # type: ignore[attr-defined]  # a plugin may be registered twice in a process
    cpu.CpuPlatform.check_and_update_config = classmethod(check_then_fork)


def pin_forked_rank(rank: int, ranks: int) -> None:
    """Bind every thread of a forked rank to one processor of its own.

    vLLM binds ranks itself only when it spawns them; ranks left unbound spin against each other (3 tokens a second).
    """
    if os.environ.get("CARVE_FORK") != "1" or ranks == 1:
        return
    processors = sorted(os.sched_getaffinity(0))
    for task in Path("/proc/self/task").iterdir():
        os.sched_setaffinity(int(task.name), {processors[rank % len(processors)]})


def _die_with_parent() -> None:
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
