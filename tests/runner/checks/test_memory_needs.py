"""Orders on GPU seats whose memory could not be predicted, or whose ranks could not be compared."""

from __future__ import annotations

import pytest

from runner.check import check
from runner.model.order import KernelOrder, parse_order
from runner.paths import source_root
from runner.steps.seats import load_manifest

DEVICE = "    windows: {processors: 132, groups: 16} # of an H200: what scratch follows from\n"


def faults(order: str, *changes: tuple[str, str]) -> list[str]:
    """Faults of a committed order with these places changed."""
    text = (source_root() / "orders" / f"{order}.yaml").read_text(encoding="utf-8")
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    parsed = parse_order(text, "order.yaml")
    assert isinstance(parsed, KernelOrder) and parsed.target
    found = check(parsed, load_manifest(parsed.target.seat))
    return [f"{'.'.join(map(str, one.path))}: {one.message}" for one in found]


SOUND = ["h200-lna2", "h200-ds-lna2", "h200-dense", "h200-lna2-tp2", "h200-scratch-per-layer"]


@pytest.mark.parametrize("order", SOUND)
def test_committed_orders_can_be_predicted_and_compared(order: str) -> None:
    assert faults(order) == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (((DEVICE, ""),), "scratch_bytes cannot be predicted here: the windows do not say the processors and groups"),
        (((DEVICE, "    windows: {processors: 132}\n"),), "the windows do not say the groups of the device"),
        (
            (("kv_cache_tokens]}", "kv_cache_tokens, outside_bytes]}"),),
            "outside_bytes cannot be predicted here: nothing predicts it",
        ),
    ],
)
def test_a_name_that_nothing_predicts(changes: tuple[tuple[str, str], ...], words: str) -> None:
    (fault,) = faults("h200-lna2", *changes)
    assert fault.startswith("gates.14.parameters.predicted: memory: ")
    assert words in fault


def test_graphs_that_no_rule_and_no_reading_covers() -> None:
    """Of lna2 at DeepSeek-V4's geometry the seat has a reading, of the paired build none."""
    (fault,) = faults("h200-ds-lna2", ("  variant: lna2\n", "  variant: lna2-paired\n"))
    assert "graph_bytes cannot be predicted here: seat h200-ds captures none, or no rule and no reading" in fault


def test_lna2_paired_can_be_predicted_on_the_small_seat() -> None:
    assert faults("h200-lna2", ("  variant: lna2\n", "  variant: lna2-paired\n")) == []


def test_scratch_of_dense_has_no_rule() -> None:
    needed = "[weights_bytes, kv_cache_tokens]} # its scratch is each module's, once a stream\n"
    (fault,) = faults("h200-dense", (needed, f"[weights_bytes, scratch_bytes, kv_cache_tokens]}}\n{DEVICE}"))
    assert "serve/scratch.py has no rule for dense: each group of matrices has scratch for each stream" in fault


def test_a_toy_has_no_weights_to_predict() -> None:
    (fault,) = faults("fake-lna2-tp8", ("{predicted: [kv_cache_tokens]}", "{predicted: [weights_bytes]}"))
    assert "weights_bytes cannot be predicted here: seat fake-tp8 loads no pack" in fault


def test_one_rank_has_none_to_be_compared_with() -> None:
    skew = """  - name: rank-skew
    version: 2
    windows:
      layer_kernels: {incumbent: ["*exl3_moe*"], candidate: ["*routed_experts*"]}
  - name: finish
"""
    (fault,) = faults("h200-lna2", ("  - name: finish\n", skew))
    assert fault == "gates.16.name: seat h200-mini has one rank: there is none that it could be compared with"


@pytest.mark.parametrize(
    ("gate", "words"),
    [("memory", "passes where nothing was"), ("rank-skew", "compares the slowest rank")],
)
def test_the_first_version_is_not_asked_for_any_more(gate: str, words: str) -> None:
    (fault,) = faults("h200-lna2-tp2", (f"  - name: {gate}\n    version: 2\n", f"  - name: {gate}\n"))
    assert f"{gate}: version 1 {words}" in fault
    assert fault.endswith("ask for version 2")
