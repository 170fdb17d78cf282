"""What of the comparison of trial designs needs no card: recorded routes, and what keeps a design from being timed."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from carve_kernels.cuda.registry import TRIALS, VARIANTS, variant
from carve_kernels.desk.gpu import trials
from carve_kernels.desk.gpu.recorded import EXPERTS, recorded, texts
from carve_kernels.desk.gpu.routed import SERVED

GOOD = {"bits": 2, "rows": 1, "error": 7e-4, "same": True, "declined": ""}


@pytest.mark.parametrize("rows", [1, 4, 32])
def test_recorded_routes_are_routes_of_the_served_layer(rows: int) -> None:
    for ids in recorded(rows, 16, SERVED.experts, torch.device("cpu")):
        assert ids.shape == (rows, SERVED.topk)
        assert ids.dtype == torch.int32
        assert all(len(set(row)) == SERVED.topk for row in ids.tolist())
        assert int(ids.min()) >= 0
        assert int(ids.max()) < SERVED.experts


def test_no_set_finds_the_experts_of_another_in_the_cache() -> None:
    sets = [set(ids.flatten().tolist()) for ids in recorded(32, 16, SERVED.experts, torch.device("cpu"))]
    assert all(len(own) <= 2 * EXPERTS for own in sets)
    assert sum(map(len, sets)) == len(set().union(*sets))


def test_neighbouring_tokens_share_experts() -> None:
    shared = [len(set(a[0]) & set(b[0])) for text in texts() for a, b in pairwise(text)]
    assert sum(shared) / len(shared) > 3 * 3 / EXPERTS


@pytest.mark.parametrize("change", [{"error": 3e-3}, {"error": float("nan")}, {"same": False}, {"declined": "shape"}])
def test_a_wrong_design_is_not_timed(change: dict[str, Any]) -> None:
    assert trials.wrong({"parity": [GOOD, GOOD | change]})
    assert not trials.wrong({"parity": [GOOD]})


def test_a_design_that_does_not_answer_is_not_timed() -> None:
    assert trials.wrong({"failed": "no answer within 150 s"}) == "no answer within 150 s"


def test_a_trial_is_found_by_its_name_and_is_no_variant() -> None:
    assert not TRIALS.keys() & VARIANTS.keys()
    assert variant("lna2-paired-cluster16").defines == ("CARVE_TUNED_ONLY", "CARVE_PAIRED", "CARVE_CLUSTER=16")


def test_a_design_that_hangs_costs_no_more_than_its_seconds(tmp_path: Path) -> None:
    """No card, no library: the process of its own is ended when its time is over, and the rest goes on."""
    assert trials.checked(tmp_path / "lib.so", [1], 0) == {"failed": "no answer within 0 s"}
