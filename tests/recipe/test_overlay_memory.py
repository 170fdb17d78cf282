"""What an overlay takes of memory grows with the number of tensors by a known, small amount for each."""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from recipe import overlay, payload, shard_write
from recipe.product import Job
from runner import digest
from tests.recipe.many_tensors import TENSORS_AN_EXPERT, many_tensors
from tests.recipe.overlays import job_of, recipe_of

_EXPERTS, _FEW, _MANY = 16, 1, 4
_BYTES_A_TENSOR = 3000
"""132,096 tensors, as many as the campaign's model has in its experts, may take 400 MB beside the interpreter's 60."""


@pytest.fixture(autouse=True)
def small_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Buffers are as large for a small pack as for a large one, and how many stand at once is up to the threads."""
    for module, name in ((payload, "CHUNK"), (shard_write, "CHUNK"), (digest, "_CHUNK")):
        monkeypatch.setattr(module, name, 1 << 14)
    monkeypatch.setattr(payload, "READERS", 1)
    monkeypatch.setattr(sys.modules["recipe.overlay.make"], "_WRITERS", 1)


def _job(folder: Path, layers: int) -> Job:
    """Every expert of every layer by a donor's."""
    folder.mkdir()
    source = many_tensors(folder / "source", layers=layers, experts=_EXPERTS, seed=1)
    donor = many_tensors(folder / "donor", layers=layers, experts=_EXPERTS, seed=2)
    names = {f"model.layers.{layer}": f"model.layers.{layer}" for layer in range(layers)}
    return job_of(folder, source, recipe_of(donor, layers=names))


def _peak(step: Callable[[], object]) -> int:
    gc.collect()
    tracemalloc.start()
    try:
        step()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_of_every_step_stays_within_a_bound_for_each_tensor(tmp_path: Path) -> None:
    first, few, many = (_job(tmp_path / f"{number}", layers) for number, layers in enumerate((_FEW, _FEW, _MANY)))
    overlay.verify(first, overlay.make(first))  # what is imported and kept once for all is no growth
    more = (_MANY - _FEW) * _EXPERTS * TENSORS_AN_EXPERT

    def growth(step: Callable[[Job], object]) -> float:
        return (_peak(lambda: step(many)) - _peak(lambda: step(few))) / more

    grown = {"plan": growth(overlay.estimate), "make": growth(overlay.make)}
    products = {job.product: overlay.make(job) for job in (few, many)}
    assert not overlay.verify(many, products[many.product]).faults
    grown["verify"] = growth(lambda job: overlay.verify(job, products[job.product]))
    assert max(grown.values()) < _BYTES_A_TENSOR, grown
    assert min(grown.values()) > 0, "what does not grow was not measured"
