"""A plan and a report say where nobody looks at what the arms wrote while they were timed."""

from __future__ import annotations

import pytest

from runner.paths import source_root
from runner.plan_text import draft


@pytest.mark.parametrize(
    ("order", "named"),
    [("h200-lna2", []), ("mini-lna2", []), ("h200-ds-lna2", ["speed", "four-streams"]), ("h200-dense", [])],
)
def test_a_plan_says_where_text_is_not_compared(order: str, named: list[str]) -> None:
    plan, text = draft(source_root() / "orders" / f"{order}.yaml")
    assert plan["text_not_compared"] == named
    assert ("text not compared" in text) == bool(named)
    assert ", ".join(named) in text


def test_the_small_gpu_seat_seals_its_own_share_of_texts() -> None:
    plan, _ = draft(source_root() / "orders" / "h200-lna2.yaml")
    sealed = {gate["name"]: gate["parameters"] for gate in plan["plan"]["gates"]}
    assert (sealed["speed"]["texts"], sealed["speed"]["text_share"]) == ("mostly", "0.75")
    assert sealed["four-streams"] == {"alike": "0.75"}


@pytest.mark.parametrize(("report", "said"), [("h200-ds-lna2/*", True), ("mini-bake/*", False)], ids=["random", "none"])
def test_a_report_says_it_too(report: str, said: bool) -> None:
    """Random weights are timed with whatever text, and an order that times nothing has none to compare."""
    texts = [path.read_text(encoding="utf-8") for path in (source_root() / "reports").glob(f"{report}/report.md")]
    assert texts
    assert {"| text not compared | speed, four-streams |" in text for text in texts} == {said}
