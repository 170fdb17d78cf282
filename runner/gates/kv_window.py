"""``kv-window``: the context window was filled to its last token, and one token more was refused."""

from __future__ import annotations

from runner.gates.base import GateInput, GateParameters
from runner.gates.common import Decision, Reading, by_limits, decide, figure, invalid, of_kind, verdict
from runner.model.sample import KvMeasure
from runner.model.verdict import Verdict

NAME = "kv-window"
VERSION = 1

_REFUSED = 400


class Parameters(GateParameters):
    """What the seat must hold."""

    pool_tokens: int = 0
    """Fewest tokens of the KV pool; a kernel that starves it is refused."""


def judge(given: GateInput) -> Verdict:
    """FAIL for a window that was not filled or has no end; a candidate is judged in a boot without the incumbent's."""
    return verdict(NAME, VERSION, decide(Parameters, (KvMeasure,), given, _decide))


def _decide(wanted: Parameters, readings: tuple[Reading, ...], given: GateInput) -> Decision:
    roles = {boot.id: boot.role for boot in given.planned_boots}
    failures, figures = [], []
    for reading, kv in of_kind(readings, KvMeasure):
        name = reading.window.id
        if reading.window.arm == "candidate" and roles.get(reading.window.boot) != "candidate-only":
            return invalid(f"{name}: the candidate's KV pool is judged in a candidate-only boot")
        figures += [
            figure(f"{name} filled", kv.filled_tokens, unit="tokens", limit=f">= {kv.max_model_len}"),
            figure(f"{name} pool", kv.pool_tokens, unit="tokens", limit=f">= {wanted.pool_tokens}"),
        ]
        if kv.max_model_len < 1 or kv.filled_tokens < kv.max_model_len:
            failures.append(f"{name}: {kv.filled_tokens} tokens were held, the window is {kv.max_model_len}")
        if kv.pool_tokens < max(wanted.pool_tokens, kv.max_model_len):
            failures.append(f"{name}: the pool holds {kv.pool_tokens} tokens")
        if kv.beyond_limit_status != _REFUSED:
            failures.append(f"{name}: one token past the limit was answered with HTTP {kv.beyond_limit_status}")
        if kv.preemptions:
            failures.append(f"{name}: {kv.preemptions} preemptions while it was filled")
    return by_limits(failures, tuple(figures), "the window was filled, and ends where it says")
