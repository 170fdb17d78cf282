"""Parts that instrument cases are put together from: a window, counters, metrics and exchanges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from runner.model.evidence import CounterRow, DeclineRow, Evidence, Exchange, RankCounters
from runner.model.plan import PlannedWindow

LAYER = "model.layers.1.mlp.experts"
MS = 1_000_000
Case = tuple[str, Sequence[Evidence], PlannedWindow, Any]
"""(folder, evidence, window, words of the fault; None for a reading that stands)."""


def window(name: str, **changes: Any) -> PlannedWindow:
    planned = PlannedWindow(
        id=f"{name}-candidate",
        boot="shared-a",
        instrument=f"{name}@1",
        arm="candidate",
        control=False,
        expects=(),
        arguments={},
        seconds=4,
    )
    return planned.model_copy(update=changes)


def counters(launches: int, rank: int = 0, pid: int = 7, declines: int = 0) -> RankCounters:
    row = CounterRow(op="routed_experts", variant="lna2", layer=LAYER, launches=launches, rows=((1, launches),))
    refusals = DeclineRow(variant="lna2", layer=LAYER, reason="other", count=declines, rows=((1, declines),))
    return RankCounters(rank=rank, pid=pid, witness=(row,), candidate=(row,), declines=(refusals,) if declines else ())


def metrics(tokens: int = 0, seconds: float = 0.0, preemptions: int = 0, hits: int = 0, finished: int = 40) -> str:
    return (
        "# TYPE vllm:generation_tokens counter\n"
        f'vllm:generation_tokens_total{{engine="0"}} {tokens}.0\n'
        f'vllm:request_decode_time_seconds_sum{{engine="0"}} {seconds}\n'
        f'vllm:num_preemptions_total{{engine="0"}} {preemptions}.0\n'
        f'vllm:prefix_cache_hits_total{{engine="0"}} {hits}.0\n'
        f'vllm:request_success_total{{engine="0",finished_reason="length"}} {finished}.0\n'
        'vllm:request_success_total{engine="0",finished_reason="abort"} 3.0\n'
    )


def evidence(of: PlannedWindow, exchanges: Sequence[Exchange] = (), **parts: Any) -> Evidence:
    standard: dict[str, Any] = {
        "counters_before": (counters(5),),
        "counters_after": (counters(9),),
        "metrics_before": metrics(100, 1.0, 2),
        "metrics_after": metrics(100, 1.0, 2),
    }
    return Evidence(
        window=of.id,
        boot=f"{of.boot}-0000000a",
        instrument=of.instrument,
        variant="lna2",
        opened_at="2026-11-30T12:00:00Z",
        opened_ns=0,
        closed_ns=1000 * MS,
        exchanges=tuple(exchanges),
        **(standard | parts),
    )


def exchange(name: str, body: Any = None, status: int = 200, **parts: Any) -> Exchange:
    standard = {"request": {"prompt": [1]}, "sent_ns": 0, "done_ns": 100 * MS}
    return Exchange(id=name, path="/v1/completions", status=status, body=body, **(standard | parts))


REFUSED = {"error": {"message": "This model's maximum context length is 8 tokens.", "code": 400}}
