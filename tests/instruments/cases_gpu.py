"""Cases of what a GPU desk wrote down."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.instruments.build import Case, evidence, window

TIMES = {"name": "candidate", "relative_error": "1e-4", "cold_ns": [9000, 9100], "warm_ns": [8000]}
SPEED = {
    "id": "k2-m4",
    "bits": 2,
    "rows": 4,
    "weights": 1000,
    "bytes": 250,
    "launches": 64,
    "counted": 64,
    "kernels": [TIMES, TIMES | {"name": "exl3_moe"}],
}
PRESSURE = {
    "id": "k2-m4",
    "bits": 2,
    "rows": 4,
    "weights": 1000,
    "bytes": 250,
    "full_ns": [20000],
    "null_ns": [12000],
    "full_error": "1e-4",
    "null_error": "1",
    "byte_floor_ns": 5000,
    "decode_floor_ns": 14000,
}
TOOL = {"tool": "memcheck", "errors": 0, "planted_errors": 64, "launches": 16, "words": "", "planted_words": ""}
FACTS: dict[str, dict[str, Any]] = {
    "kernel-speed": {"version": "1.6.5", "incumbent_digest": "a" * 64, "cases": [SPEED]},
    "pressure": {"read_bytes_per_second": 4, "decode_weights_per_second": {"2": 5}, "cases": [PRESSURE]},
    "sanitizer": {"tools": [TOOL]},
}
"""What a whole answer holds."""


def facts(name: str) -> Callable[[], list[Case]]:
    def cases() -> list[Case]:
        planned = window(name, boot="desk", arm="none", control=True)
        whole = FACTS[name]
        rows = next(key for key, value in whole.items() if isinstance(value, list))

        def one(changed: dict[str, Any]) -> Any:
            return [evidence(planned, facts=changed, counters_before=(), counters_after=())]

        torn = {key: value for key, value in whole[rows][0].items() if key not in ("errors", "full_ns", "kernels")}
        return [
            ("whole_pass", one(whole), planned, None),
            ("nothing-measured_pass", one(whole | {rows: []}), planned, None),
            ("no-answer_fail", one({}), planned, "Field required"),
            ("a-field-is-missing_fail", one(whole | {rows: [torn]}), planned, f"facts.{rows}.0"),
            ("a-field-too-many_fail", one(whole | {"verdict": "PASS"}), planned, "facts.verdict"),
        ]

    return cases
