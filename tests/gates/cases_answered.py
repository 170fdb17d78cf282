"""Cases of gates about what an engine answers: needles, the filled window and how texts end."""

from __future__ import annotations

from typing import Any

from runner.gates.base import GateInput
from runner.model.sample import (
    FinishMeasure,
    KvMeasure,
    NeedleMeasure,
    NeedleTrial,
    StreamMeasure,
)
from tests.gates.build import CANDIDATE, DIGEST, INCUMBENT, Case, given, sample, window

SHARED = {"shared-b": "shared"}
ALONE = {"candidate-only": "candidate-only"}


def needle() -> list[Case]:
    base = window("needle-incumbent", "shared-b", "needle", "incumbent")
    own = window("needle-candidate", "shared-b", "needle")

    def trials(missed: int, *, prompt_tokens: int = 1792, first: int = 0) -> NeedleMeasure:
        return NeedleMeasure(
            trials=tuple(
                NeedleTrial(
                    id=f"en-{depth:02d}",
                    language="en",
                    depth_percent=depth,
                    prompt_tokens=prompt_tokens,
                    found=not first <= index < first + missed,
                )
                for index, depth in enumerate(range(10, 90, 8))
            )
        )

    def one(missed: NeedleMeasure, incumbent: NeedleMeasure | None = None, **changes: Any) -> GateInput:
        parameters = changes.pop("parameters", {})
        readings = [
            (base, sample(base, incumbent or trials(0), INCUMBENT)),
            (own, sample(own, missed, **changes)),
        ]
        return given(parameters, SHARED, readings)

    alone = given({}, SHARED, [(base, sample(base, trials(0), INCUMBENT))])
    blind = given({}, SHARED, [(base, sample(base, trials(5), INCUMBENT))])
    nobody = given({}, SHARED, [(base, sample(base, NeedleMeasure(trials=()), INCUMBENT))])
    return [
        ("one-lost_fail", one(trials(1)), "FAIL", "lost: en-10"),
        ("five-lost_fail", one(trials(5), parameters={"lost": 5}), "FAIL", "lost: en-10, en-18"),
        ("lost-one-and-won-another_fail", one(trials(1, first=3), trials(1)), "FAIL", "lost: en-34"),
        ("incumbent-is-blind_fail", one(trials(5), trials(5)), "UNRESOLVED", "the incumbent finds only 0.50"),
        ("standing-is-blind_fail", blind, "FAIL", "finds 0.50"),
        ("none-lost_pass", one(trials(0)), "PASS", "no needle was lost"),
        ("none-lost-one-won_pass", one(trials(0), trials(1)), "PASS", "no needle was lost"),
        ("incumbent-at-its-share_pass", one(trials(2), trials(2)), "PASS", "no needle was lost"),
        ("one-allowed_pass", one(trials(1), parameters={"lost": 1}), "PASS", "no needle was lost"),
        ("standing-finds-them_pass", alone, "PASS", "finds 1.00"),
        ("FL-58-error-chunk_invalid", one(trials(0), faults=("en-10: HTTP 200: error",)), "INVALID", "en-10"),
        ("shorter-haystack_invalid", one(trials(0, prompt_tokens=300)), "INVALID", "other needles"),
        ("nobody-asked_invalid", nobody, "INVALID", "no needle was hidden"),
    ]


def kv_window() -> list[Case]:
    def one(roles: dict[str, str] = ALONE, arm: str = "candidate", **changes: Any) -> GateInput:
        parameters = changes.pop("parameters", {})
        planned = window("kv-window", next(iter(roles)), "kv-window", arm)
        measure = KvMeasure(
            max_model_len=2048, pool_tokens=4096, filled_tokens=2048, preemptions=0, beyond_limit_status=400
        ).model_copy(update=changes)
        variant = CANDIDATE if arm == "candidate" else INCUMBENT
        return given(parameters, roles, [(planned, sample(planned, measure, variant))])

    return [
        ("not-filled_fail", one(filled_tokens=2047), "FAIL", "2047 tokens were held"),
        ("window-has-no-end_fail", one(beyond_limit_status=200), "FAIL", "HTTP 200"),
        ("FL-31-pool-too-small_fail", one(pool_tokens=1024), "FAIL", "the pool holds 1024"),
        ("FL-33-pool-below-the-order_fail", one(parameters={"pool_tokens": 5000}), "FAIL", "the pool holds 4096"),
        ("preempted_fail", one(preemptions=1), "FAIL", "1 preemptions"),
        ("FL-37-no-room-for-the-cache_fail", one(pool_tokens=0), "FAIL", "the pool holds 0"),
        ("no-window_fail", one(max_model_len=0), "FAIL", "the window is 0"),
        ("filled_pass", one(parameters={"pool_tokens": 4096}), "PASS", "was filled"),
        ("pool-of-one-window_pass", one(pool_tokens=2048), "PASS", "was filled"),
        ("standing_pass", one({"shared-a": "shared"}, "incumbent"), "PASS", "was filled"),
        ("beside-the-incumbent_invalid", one({"shared-a": "shared"}), "INVALID", "candidate-only boot"),
    ]


def finish() -> list[Case]:
    def one(reason: str = "stop", tokens: int = 40, count: int = 6, **changes: Any) -> GateInput:
        parameters = changes.pop("parameters", {})
        texts = tuple(
            StreamMeasure(
                id=f"en-{index}",
                language="en",
                prompt_digest=DIGEST,
                completion_tokens=tokens if index == 0 else 40,
                ttft_ns=1,
                decode_ns=1,
                inter_token_ns=(1, 1, 1),
                finish_reason=reason if index == 0 else "stop",
            )
            for index in range(count)
        )
        planned = window("finish", "candidate-only", "finish")
        return given(parameters, ALONE, [(planned, sample(planned, FinishMeasure(texts=texts), **changes))])

    return [
        ("FL-28-aborted_fail", one("abort"), "FAIL", "finished by 'abort'"),
        ("FL-64-out-of-budget_fail", one("length", parameters={"stopped": "1"}), "FAIL", "0.83 of the texts"),
        ("empty-text_fail", one(tokens=0), "FAIL", "0 tokens"),
        ("too-short_fail", one(tokens=9, parameters={"tokens": 10}), "FAIL", "9 tokens"),
        ("no-text_fail", one(count=0), "FAIL", "no text"),
        ("length-forbidden_fail", one("length", parameters={"allowed": ["stop"]}), "FAIL", "'length'"),
        ("all-stop_pass", one(parameters={"stopped": "1", "tokens": 40}), "PASS", "ended as allowed"),
        ("one-at-its-budget_pass", one("length", 1), "PASS", "ended as allowed"),
        ("stream-broke-off_invalid", one(faults=("en-3: the stream broke off",)), "INVALID", "broke off"),
        ("other-boot_invalid", one(boot="shared-a-00000001"), "INVALID", "left no record"),
    ]
