"""Cases of streamed completions: speed and finish."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from runner.model.evidence import Exchange, MachineState
from runner.model.plan import PlannedWindow
from tests.instruments.build import MS, REFUSED, Case, counters, evidence, exchange, metrics, window


def stream(name: str, tokens: Sequence[int] = (5, 6, 7), **changes: Any) -> Exchange:
    """One token each 10 ms from 20 ms on; ``per_event`` tokens an event."""
    per_event, reason = changes.pop("per_event", 1), changes.pop("reason", "length")
    usage, end = changes.pop("usage", len(tokens)), changes.pop("end", True)
    extra = changes.pop("extra", ())
    events: list[tuple[int, str]] = []
    for start in range(0, len(tokens), per_event):
        last = start + per_event >= len(tokens)
        choice = {"token_ids": list(tokens[start : start + per_event]), "finish_reason": reason if last else None}
        events.append(((20 + 10 * start) * MS, json.dumps({"choices": [choice]})))
    at = (30 + 10 * len(tokens)) * MS
    events += [(at, text) for text in extra]
    if usage is not None:
        events.append((at, json.dumps({"choices": [], "usage": {"completion_tokens": usage}})))
    if end:
        events.append((at, "[DONE]"))
    prompt = changes.pop("prompt", [ord(letter) for letter in name])
    return exchange(name, events=tuple(events), request={"prompt": prompt}, **changes)


def texts(*names: str) -> dict[str, Any]:
    return {"texts": {name: {"language": name[:2], "tokens": [1, 2, 3]} for name in names}}


def speed() -> list[Case]:
    planned = window("speed", arguments={"streams": 1})
    two = window("speed", arguments={"streams": 2})
    names = ("en-1", "ja-1")

    def one(
        *exchanges: Exchange, of: PlannedWindow = planned, tokens: int = 6, seconds: float = 0.04, **parts: Any
    ) -> Any:
        asked = exchanges or [stream(name) for name in names]
        after = metrics(100 + tokens, 1.0 + seconds, 2, finished=40 + len(asked))
        return [evidence(of, asked, **({"material": texts(*names), "metrics_after": after} | parts))]

    idle = counters(5).model_copy(update={"witness": (), "candidate": ()})

    def declining(before: int, after: int) -> dict[str, Any]:
        return {
            "counters_before": (counters(5, declines=before),),
            "counters_after": (counters(9, declines=after),),
        }

    def coarse(per_event: int, tokens: int, **parts: Any) -> Any:
        return one(*(stream(name, range(tokens), per_event=per_event) for name in names), tokens=2 * tokens, **parts)

    def at_once(one_stream: Exchange) -> Exchange:
        """Everything arrives in one instant."""
        return one_stream.model_copy(update={"events": tuple((20 * MS, data) for _, data in one_stream.events)})

    def announced(one_stream: Exchange) -> Exchange:
        """The first event carries no token."""
        hello = (10 * MS, json.dumps({"choices": [{"token_ids": [], "finish_reason": None}]}))
        return one_stream.model_copy(update={"events": (hello, *one_stream.events)})

    calm = metrics(106, 1.04, 2, finished=42)
    broken = stream("ja-1", extra=['{"error": {"message": "out of memory"}}'])
    return [
        ("two-languages_pass", one(), planned, None),
        ("SF-13-two-streams_pass", one(of=two, seconds=0.4), two, None),
        (
            "FL-57-coalesced-events_pass",
            one(stream("en-1", per_event=3), stream("ja-1"), seconds=0.0202),
            planned,
            None,
        ),
        (
            "FL-57-tokens-missing_fail",
            one(stream("en-1", usage=9), stream("ja-1"), tokens=12),
            planned,
            "3 tokens streamed",
        ),
        ("metrics-count-other-tokens_fail", one(tokens=7), planned, "usage says 6 tokens, /metrics 7"),
        ("metrics-saw-another-time_pass", one(seconds=0.06), planned, None),
        ("no-metrics_fail", one(metrics_after=metrics(106).replace("generation", "x")), planned, "serves no token"),
        (
            "no-decode-time_fail",
            one(metrics_after=metrics(106, 1.04, 2).replace("decode", "x")),
            planned,
            "serves no token",
        ),
        ("nothing-before_fail", one(metrics_before=""), planned, "serves no token"),
        ("FL-58-error-event_fail", one(stream("en-1"), broken), planned, "an event is an error"),
        (
            "event-is-no-json_fail",
            one(stream("en-1"), stream("ja-1", extra=["<html>"])),
            planned,
            "an event is an error",
        ),
        ("event-is-a-list_fail", one(stream("en-1"), stream("ja-1", extra=["[1]"])), planned, "an event is an error"),
        (
            "stream-broke-off_fail",
            one(stream("en-1"), stream("ja-1", end=False)),
            planned,
            "ja-1: the stream broke off",
        ),
        (
            "connection-lost_fail",
            one(stream("en-1"), stream("ja-1", body={"transport_error": "reset"})),
            planned,
            "reset",
        ),
        ("server-error_fail", one(stream("en-1"), stream("ja-1", status=500)), planned, "HTTP 500"),
        ("case-22-five-tokens-an-event_pass", coarse(5, 20), planned, None),
        ("first-event-without-tokens_pass", one(announced(stream("en-1")), stream("ja-1")), planned, None),
        ("all-in-one-instant_pass", one(at_once(stream("en-1")), stream("ja-1"), seconds=0.02), planned, None),
        ("case-23-sixteen-tokens-an-event_pass", coarse(16, 32), planned, None),
        ("case-23-bursts_fail", coarse(32, 64), planned, "64 tokens came in 2 events"),
        (
            "case-25-somebody-elses-requests_fail",
            one(metrics_after=metrics(106, 1.04, 2, finished=45)),
            planned,
            "5 requests finished in the window, 2 are ours",
        ),
        (
            "case-25-not-screened_fail",
            one(metrics_after=calm.replace("request_success", "x")),
            planned,
            "other traffic cannot be ruled out",
        ),
        ("case-22-no-usage_fail", one(stream("en-1"), stream("ja-1", usage=None), tokens=3), planned, "no usage"),
        ("stopped-early_fail", one(stream("en-1"), stream("ja-1", reason="stop")), planned, "finished by 'stop'"),
        (
            "empty_fail",
            one(stream("en-1"), stream("ja-1", tokens=()), tokens=3, seconds=0.02),
            planned,
            "an empty completion",
        ),
        (
            "SF-13-one-prompt-for-all_fail",
            one(stream("en-1"), stream("ja-1", prompt=[ord(x) for x in "en-1"])),
            planned,
            "not its own",
        ),
        ("stream-never-asked_fail", one(stream("en-1"), tokens=3, seconds=0.02), planned, "ja-1: never asked"),
        (
            "nothing-asked_fail",
            one(of=planned, material={"texts": {}}, tokens=0, seconds=0.0),
            planned,
            "no completion",
        ),
        ("warm-prefix-cache_fail", one(metrics_after=metrics(106, 1.04, 2, 16)), planned, "16 prefix-cache hits"),
        ("preempted_fail", one(metrics_after=metrics(106, 1.04, 3)), planned, "1 preemptions"),
        (
            "no-preemption-counter_fail",
            one(metrics_after=metrics(106, 1.04).replace("num_pre", "x")),
            planned,
            "no preemption counter",
        ),
        ("rank-lost_fail", one(counters_after=()), planned, "rank 0: counters were read only once"),
        ("rank-restarted_fail", one(counters_after=(counters(9, pid=8),)), planned, "process 7 became 8"),
        ("counter-ran-backwards_fail", one(counters_after=(counters(3),)), planned, "ran backwards"),
        ("nothing-sent_fail", [evidence(planned, material={"texts": {}})], planned, "no completion"),
        ("no-time-passed_pass", one(*(stream(name, done_ns=0) for name in names)), planned, None),
        (
            "streams-is-text_fail",
            one(),
            window("speed", arguments={"streams": "two"}),
            "streams must be a whole number",
        ),
        ("variant-first-seen-inside_pass", one(counters_before=(idle,)), planned, None),
        ("counter-vanished_fail", one(counters_after=(idle,)), planned, "ran backwards"),
        ("declines-before-and-after_pass", one(**declining(1, 3)), planned, None),
        ("declines-unchanged_pass", one(**declining(2, 2)), planned, None),
        ("declines-vanished_fail", one(**declining(2, 0)), planned, "ran backwards"),
        ("no-material_fail", one(material={}), planned, "lacks what this instrument reads"),
        *_machine(planned, one),
    ]


def _machine(planned: PlannedWindow, one: Callable[..., Any]) -> list[Case]:
    """Two processors, 100 ticks a second, one second: 200 ticks."""
    facts = {"limits": {"steal_fraction": "0.05", "foreign_fraction": "0.1"}, "processors": 2, "ticks_per_second": 100}

    def state(at_s: int, steal: int, busy: int, own: int) -> MachineState:
        return MachineState(at_ns=at_s * 1000 * MS, load1_milli=900, steal_ticks=steal, busy_ticks=busy, own_ticks=own)

    first = state(0, 10, 1000, 500)
    return [
        ("calm_pass", one(facts=facts, machine=(first, state(1, 20, 1180, 660))), planned, None),
        ("more-own-than-busy_pass", one(facts=facts, machine=(first, state(1, 10, 1100, 700))), planned, None),
        (
            "FL-68-steal_fail",
            one(facts=facts, machine=(first, state(1, 22, 1180, 680))),
            planned,
            "steal fraction 0.060",
        ),
        (
            "neighbour-busy_fail",
            one(facts=facts, machine=(first, state(1, 10, 1180, 600))),
            planned,
            "foreign fraction 0.400",
        ),
        ("not-watched_fail", one(facts=facts, machine=(first,)), planned, "was not read"),
        ("no-time-passed_fail", one(facts=facts, machine=(first, first)), planned, "cannot be scaled"),
        (
            "processors-unknown_fail",
            one(facts={"limits": facts["limits"]}, machine=(first, state(1, 10, 1100, 600))),
            planned,
            "cannot be scaled",
        ),
    ]


def finish() -> list[Case]:
    planned = window("finish")

    def one(*exchanges: Exchange) -> Any:
        return [evidence(planned, exchanges, material=texts("en-1", "ja-1"))]

    return [
        ("stop-and-length_pass", one(stream("en-1", reason="stop"), stream("ja-1")), planned, None),
        ("empty_fail", one(stream("en-1", tokens=()), stream("ja-1")), planned, "an empty completion"),
        ("context-exceeded_fail", one(stream("en-1"), exchange("ja-1", REFUSED, 400)), planned, "HTTP 400"),
        ("broke-off_fail", one(stream("en-1"), stream("ja-1", end=False)), planned, "broke off"),
    ]
