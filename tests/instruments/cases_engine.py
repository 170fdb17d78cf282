"""Cases of deliberate changes, the KV window, and facts that somebody else wrote down."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from runner.model.evidence import Evidence, Exchange
from tests.instruments.build import REFUSED, Case, counters, evidence, exchange, metrics, window
from tests.instruments.cases_likelihood import forced
from tests.instruments.cases_streams import texts


def shift(name: str) -> Callable[[], list[Case]]:
    def cases() -> list[Case]:
        planned = window(name)
        ranks = {"counters_before": (counters(5), counters(5, 1)), "counters_after": (counters(9), counters(9, 1))}
        phases = {"before": (-1.0, -2.0), "repeat": (-1.0, -2.5), "rank0": (-2.0, -2.0), "rank1": (-1.0, -5.0)}

        def one(**changes: Any) -> Any:
            facts = changes.pop("facts", {})
            parts = {key: changes.pop(key) for key in ("counters_before", "counters_after") if key in changes}
            exchanges = [forced(f"{phase}/en-1", values) for phase, values in (phases | changes).items() if values]
            return [evidence(planned, exchanges, material=texts("en-1"), facts=facts, **(ranks | parts))]

        wrong = one()[0]
        unforced = tuple(
            forced("rank1/en-1", ids=[2, 9]) if exchange.id == "rank1/en-1" else exchange
            for exchange in wrong.exchanges
        )
        return [
            ("moved_pass", one(), planned, None),
            ("nothing-moved_pass", one(rank0=(-1.0, -2.0), rank1=(-1.0, -2.0), repeat=(-1.0, -2.0)), planned, None),
            ("predicted_pass", one(facts={"predicted": {"0": [-1.0, 0.5], "1": [0.0, 0.0]}}), planned, None),
            ("prediction-of-one-rank_pass", one(facts={"predicted": {"0": [-1.0, 0.0]}}), planned, None),
            (
                "prediction-of-other-length_fail",
                one(facts={"predicted": {"0": [1.0]}}),
                planned,
                "1 changes predicted for 2",
            ),
            ("prediction-is-text_fail", one(facts={"predicted": {"1": "far"}}), planned, "0 changes predicted for 2"),
            ("rank-never-changed_fail", one(rank1=()), planned, "rank1/en-1: never asked"),
            ("no-floor_fail", one(repeat=()), planned, "repeat/en-1: never asked"),
            ("ids-not-forced_fail", [wrong.model_copy(update={"exchanges": unforced})], planned, "not the forced ids"),
            ("no-rank_fail", one(counters_before=(), counters_after=()), planned, "no rank was changed"),
        ]

    return cases


def knock_out_decline() -> list[Case]:
    planned = window("knock-out-decline")
    words = "carve strict 2: variant lna2 declined on rank 1, rank 0: other"

    def one(ended: str, reason: str, *exchanges: Exchange) -> Any:
        return [evidence(planned, exchanges, facts={"ended": ended, "reason": reason})]

    served = exchange("en-1", {"choices": [{"text": "x"}]})
    failed = exchange("en-1", {"error": words}, 500)
    nothing = [evidence(planned)]
    return [
        ("refused-at-start_pass", one("refused", words), planned, None),
        ("refused-at-first-request_pass", one("running", "", served, failed), planned, None),
        ("served-all-the-same_pass", one("running", "", served), planned, None),
        ("died-of-something-else_pass", one("died", "port 8000 in use"), planned, None),
        ("refused-and-asked_pass", one("refused", words, failed), planned, None),
        ("not-recorded_fail", nothing, planned, "lacks what this instrument reads"),
        ("no-reason_fail", [evidence(planned, facts={"ended": "refused"})], planned, "lacks what"),
        (
            "rank-lost_fail",
            [one("running", "", served)[0].model_copy(update={"counters_after": ()})],
            planned,
            "only once",
        ),
    ]


def kv_window() -> list[Case]:
    planned = window("kv-window")
    facts = {"max_model_len": 8, "kv_tokens": 64}

    def fill(name: str, total: int) -> Exchange:
        return exchange(name, {"choices": [{"text": "x"}], "usage": {"total_tokens": total}})

    beyond = exchange("beyond", REFUSED, 400)

    def one(*exchanges: Exchange, **parts: Any) -> Any:
        return [evidence(planned, exchanges, **({"facts": facts} | parts))]

    failed = exchange("fill-2", {"error": "x"}, 500)
    return [
        ("filled_pass", one(fill("fill-1", 8), fill("fill-2", 8), beyond), planned, None),
        ("smallest-counts_pass", one(fill("fill-1", 8), fill("fill-2", 6), beyond), planned, None),
        ("no-end_pass", one(fill("fill-1", 8), exchange("beyond", {"choices": [{}]})), planned, None),
        ("limit-unknown_pass", one(fill("fill-1", 8), beyond, facts=facts | {"kv_tokens": None}), planned, None),
        ("fill-failed_fail", one(fill("fill-1", 8), failed, beyond), planned, "fill-2: HTTP 500"),
        ("nothing-filled_fail", one(beyond), planned, "nothing was filled"),
        ("limit-never-tried_fail", one(fill("fill-1", 8)), planned, "never asked for"),
        (
            "preempted_fail",
            one(fill("fill-1", 8), beyond, metrics_after=metrics(100, 1.0, 5)),
            planned,
            "3 preemptions",
        ),
    ]


def engaged() -> list[Case]:
    planned = window("engaged")
    good = exchange("en-1", {"choices": [{"text": "x"}], "usage": {"completion_tokens": 16}})
    empty = exchange("en-1", {"choices": [{"text": ""}]})
    page = exchange("en-2", "<html>", 502)
    return [
        ("no-json_fail", [evidence(planned, [good, page])], planned, "en-2: HTTP 502"),
        ("sixteen-tokens_pass", [evidence(planned, [good])], planned, None),
        ("nothing-asked_fail", [evidence(planned)], planned, "no token"),
        ("no-usage_fail", [evidence(planned, [empty])], planned, "no token"),
        ("error_fail", [evidence(planned, [good, exchange("en-2", {"error": "x"}, 500)])], planned, "en-2: HTTP 500"),
    ]


def resolved() -> list[Case]:
    planned = window("resolved")
    asked = {"max_model_len": 2048, "dtype": "float32"}

    def one(*answers: Any, method: str = "resolved") -> Any:
        call = {"method": method, "arguments": {}, "results": answers, "at_ns": 1}
        return [evidence(planned, calls=(call,), facts={"requested": asked})]

    return [
        ("two-ranks_pass", one(asked, asked), planned, None),
        ("FL-04-absent_pass", one({"dtype": "float32"}), planned, None),
        ("rank-1-differs_pass", one(asked, asked | {"max_model_len": 1024}), planned, None),
        ("rank-1-says-nothing_fail", one(asked, None), planned, "rank 1 gave no configuration"),
        ("never-asked_fail", one(asked, method="identity"), planned, "lacks what"),
        ("no-request-known_fail", [evidence(planned)], planned, "lacks what"),
        (
            "request-is-text_fail",
            [one(asked)[0].model_copy(update={"facts": {"requested": "x"}})],
            planned,
            "lacks what",
        ),
    ]


def restore() -> list[Case]:
    planned = window("restore")
    facts: dict[str, Any] = {"leftovers": [], "requested": {"kv": 1}, "resolved": {"kv": 1}}
    counted: dict[str, Any] = {
        "requested": {"container.mounts": 8, "container.mount./plugin": "/srv/plugin read-only"},
        "resolved": {"container.mounts": 9, "container.mount./other": "/srv/other writable"},
    }

    def one(**changes: Any) -> Any:
        return [evidence(planned, facts=facts | changes)]

    return [
        ("came-back_pass", one(), planned, None),
        ("FL-10-differs_pass", one(resolved={"kv": 2}, leftovers=["port 8011"]), planned, None),
        ("container-counted_pass", one(**counted), planned, None),
        ("not-looked_fail", [evidence(planned)], planned, "lacks what"),
        ("leftovers-no-list_fail", one(leftovers="none"), planned, "lacks what"),
        ("requested-no-object_fail", one(requested=[]), planned, "lacks what"),
        ("resolved-no-object_fail", one(resolved=[]), planned, "lacks what"),
    ]


def parity() -> list[Case]:
    planned = window("parity")
    case = {
        "id": "a",
        "rows": 4,
        "bits": 2,
        "relative_error": "1e-3",
        "norm_ratio": "1",
        "finite": True,
        "repeat_equal": True,
    }

    def one(cases: Any) -> Any:
        return [evidence(planned, facts={"cases": cases})]

    return [
        ("two-cases_pass", one([case, case | {"id": "b", "declined": "shape"}]), planned, None),
        ("no-number_fail", one([case, case | {"relative_error": "NaN"}]), planned, "case 1 is malformed"),
        ("not-a-list_fail", one("passed"), planned, "lacks what"),
        ("nothing-run_fail", [evidence(planned)], planned, "lacks what"),
    ]


def product() -> list[Case]:
    planned = window("product")
    facts: dict[str, Any] = {
        "digests": {"header": "a" * 64, "payload": "b" * 64},
        "summary": {"tensors replaced": "72"},
        "faults": [],
        "provenance": "{}",
    }

    def lacks(name: str, value: object = None) -> list[Evidence]:
        return [evidence(planned, facts={key: one for key, one in facts.items() if key != name} | {name: value})]

    dropped = facts | {"faults": ["experts.0.gate_proj.weight is still there"]}
    return [
        ("whole_pass", [evidence(planned, facts=facts)], planned, None),
        ("FL-38-nothing-was-dropped_pass", [evidence(planned, facts=dropped)], planned, None),
        ("not-verified_fail", [evidence(planned)], planned, "lacks what"),
        ("no-digests_fail", lacks("digests"), planned, "lacks what"),
        ("no-summary_fail", lacks("summary", "72 tensors"), planned, "lacks what"),
        ("faults-no-list_fail", lacks("faults", "none"), planned, "lacks what"),
    ]


def claims() -> list[Case]:
    planned = window("claims")
    seen: dict[str, Any] = {"fact": "expert-bytes", "stated": "812544 bytes", "found": "812544", "agrees": True}
    unseen = {"fact": "reading", "stated": "it is so", "found": "no probe", "agrees": None}

    def one(*claims: object) -> list[Evidence]:
        return [evidence(planned, facts={"claims": list(claims)})]

    return [
        ("two-claims_pass", one(seen, unseen), planned, None),
        ("FL-51-steps-by-spans_pass", one(seen | {"fact": "steps", "found": "24", "agrees": False}), planned, None),
        ("nobody-looked_fail", [evidence(planned)], planned, "lacks what"),
        ("not-a-list_fail", [evidence(planned, facts={"claims": True})], planned, "lacks what"),
        ("no-answer_fail", one({key: value for key, value in seen.items() if key != "agrees"}), planned, "lacks what"),
        ("word-for-an-answer_fail", one(seen | {"agrees": "yes, surely"}), planned, "lacks what"),
    ]


def pack() -> list[Case]:
    planned = window("pack")
    facts: dict[str, Any] = {"header_digest": "a" * 64, "payload_digest": "b" * 64, "faults": []}
    return [
        ("closed_pass", [evidence(planned, facts=facts)], planned, None),
        ("FL-46-link_pass", [evidence(planned, facts=facts | {"faults": ["a link leaves the pack"]})], planned, None),
        ("not-checked_fail", [evidence(planned)], planned, "lacks what"),
        ("faults-no-list_fail", [evidence(planned, facts=facts | {"faults": "none"})], planned, "lacks what"),
        (
            "no-payload-digest_fail",
            [evidence(planned, facts={"header_digest": "a", "faults": []})],
            planned,
            "lacks what",
        ),
    ]
