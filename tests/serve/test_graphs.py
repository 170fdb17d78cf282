"""Graph memory by the rule of torch's allocator, beside what boots on an H200 read back."""

from __future__ import annotations

from typing import Any

import pytest

from recipe.mini.random_pack import CONFIGURATION
from runner.paths import source_root
from runner.steps.seats import load_manifest
from serve.graphs import graph_bytes
from serve.prediction import configuration

MINI = configuration(source_root() / "recipe/mini/pack")
DEEPSEEK = {"hidden_size": 4096, "intermediate_size": 256, "moe_intermediate_size": 256, "n_routed_experts": 256}
DEEPSEEK |= {"num_experts_per_tok": 6, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 128}


BOTH = ("incumbent", "lna2")


def configured(changes: dict[str, Any]) -> dict[str, Any]:
    """The mini pack's configuration with changes; None leaves a field out."""
    return {name: value for name, value in (CONFIGURATION | MINI | changes).items() if value is not None}


@pytest.mark.parametrize(("variants", "live"), [(BOTH[:1], 2_097_152), (BOTH, 4_194_304)])
def test_what_boots_on_an_h200_held(variants: tuple[str, ...], live: int) -> None:
    """Order h200-lna2: every boot after its first capture, and the candidate-only boot after its second."""
    assert graph_bytes(MINI, load_manifest("h200-mini").arguments, variants) == live


@pytest.mark.parametrize(
    ("variants", "live"), [(BOTH[:1], 25_165_824), (BOTH[1:], 23_068_672), (BOTH, 48_234_496), (("lna2-paired",), None)]
)
def test_sets_that_no_rule_covers_are_as_reports_read_them(variants: tuple[str, ...], live: int | None) -> None:
    """Order h200-ds-lna2: every shared boot, the candidate-only boot at its start, and after its second capture."""
    seat = load_manifest("h200-ds")
    assert graph_bytes(configured(DEEPSEEK), seat.arguments, variants, measured=seat.graph_bytes) == live


@pytest.mark.parametrize("seat", ["h200-mini-tp2", "h200-mini-tp4"])
def test_a_rank_of_several_holds_no_more(seat: str) -> None:
    assert graph_bytes(MINI, load_manifest(seat).arguments, BOTH[:1]) == 2_097_152


def test_what_a_signed_report_read_goes_before_the_rule() -> None:
    measured = {"incumbent": 23 << 20, "lna2": 21 << 20}
    assert graph_bytes(MINI, load_manifest("h200-mini").arguments, BOTH, measured=measured) == 44 << 20


def test_a_set_that_was_never_read_leaves_all_to_the_rule() -> None:
    arguments = load_manifest("h200-mini").arguments
    assert graph_bytes(MINI, arguments, BOTH, measured={"incumbent": 23 << 20}) == 4_194_304


@pytest.mark.parametrize(
    "changes",
    [
        {"enforce_eager": True},
        {"compilation_config": {"cudagraph_mode": "NONE"}},
        {"compilation_config": {"cudagraph_capture_sizes": []}},
        {"compilation_config": None},
    ],
)
def test_without_graphs_there_is_none(changes: dict[str, Any]) -> None:
    assert graph_bytes(MINI, {**load_manifest("h200-mini").arguments, **changes}, BOTH[:1]) == 0
    assert graph_bytes(MINI, load_manifest("cpu-mini").arguments, BOTH[:1]) == 0


@pytest.mark.parametrize(
    ("config", "arguments"),
    [
        (DEEPSEEK, {}),  # attention's parts alone take 4 MiB: a large segment, and small ones that come and go
        ({"head_dim": 65}, {}),  # a tensor just too large for a small segment
        ({"hidden_size": 2048}, {}),  # small tensors that together may fill more than one
        ({}, {"compilation_config": {"cudagraph_capture_sizes": [1, 64]}}),
        ({}, {"speculative_config": {"method": "ngram"}}),  # a draft captures graphs of its own
        ({"head_dim": None}, {}),
    ],
)
def test_where_shapes_do_not_decide_it_is_unknown(config: dict[str, Any], arguments: dict[str, Any]) -> None:
    assert graph_bytes(configured(config), load_manifest("h200-mini").arguments | arguments, BOTH[:1]) is None
