"""A label stands with what answered, even where everything that repeats it was edited along."""

from __future__ import annotations

import pytest

from runner.boots import SIMULATION, label_fault
from runner.model.boot import BootRecord
from serve.adapters.fake_engine import DISTRIBUTION
from tests.runner.records import make_run

(BOOT,) = make_run().record.boots
TOY = {"name": SIMULATION, "version": "0.1.0"}


def boot(label: str, engine: dict[str, str], *devices: str) -> BootRecord:
    """The boot with another label and engine, every rank on ``devices``."""
    ranks = tuple(rank.model_copy(update={"devices": devices}) for rank in BOOT.ranks)
    return BOOT.model_copy(update={"label": label, "engine": engine, "ranks": ranks})


@pytest.mark.parametrize(
    "honest",
    [BOOT, boot("simulated", TOY), boot("real", BOOT.engine, "GPU-1"), boot("none", {}), boot("real", {})],
    ids=["cpu", "simulated", "real", "none", "nothing answered"],
)
def test_what_answered_bears_its_label(honest: BootRecord) -> None:
    assert label_fault(honest) == ""


@pytest.mark.parametrize(
    ("forged", "words"),
    [
        (boot("cpu", TOY), "dsv4-carve answered"),
        (boot("real", TOY, "GPU-1"), "dsv4-carve answered"),
        (boot("simulated", BOOT.engine), "vllm-cpu answered"),
        (boot("real", BOOT.engine), "rank 0 on no device"),
        (boot("cpu", BOOT.engine, "GPU-1"), "rank 0 on GPU-1"),
    ],
)
def test_a_label_of_something_else_is_named(forged: BootRecord, words: str) -> None:
    assert words in label_fault(forged)


def test_the_toy_engine_goes_by_the_name_that_labels_it() -> None:
    assert DISTRIBUTION == SIMULATION
