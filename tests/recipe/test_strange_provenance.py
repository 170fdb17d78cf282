"""A finished product whose provenance is junk: verification says so, and the work does not take it for its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from recipe import bake, overlay
from recipe.product import Job
from runner.errors import StateError
from runner.model.order.bake import Bake, Rate
from runner.model.product import PROVENANCE
from tests.recipe.overlays import donor_pack, job_of, recipe_of, source_pack

FORMS = [b'{"modules": [], "identity": 1}', b'{"tensors": 5, "source": []}']
JUNK = [b"", b"[]", b'"text"', b"{}", b"\xff", b"[" * 10**5, *FORMS]


@pytest.fixture(scope="module")
def overlaid(tmp_path_factory: pytest.TempPathFactory) -> Job:
    folder = tmp_path_factory.mktemp("overlaid")
    return job_of(folder, source_pack(folder / "source"), recipe_of(donor_pack(folder / "donor")))


@pytest.fixture(scope="module")
def baked(tmp_path_factory: pytest.TempPathFactory) -> Job:
    folder = tmp_path_factory.mktemp("baked")
    recipe = Bake(modules=("model.layers.0.self_attn.k_proj",), rates=(Rate(modules="*", bits=2),))
    return job_of(folder, source_pack(folder / "source", layers=1, vocabulary=300), recipe)


@pytest.mark.parametrize("content", JUNK, ids=lambda content: content[:12].decode(errors="replace"))
@pytest.mark.parametrize("kind", ["overlay", "bake"])
def test_junk_is_a_fault_and_nobodys_product(kind: str, content: bytes, overlaid: Job, baked: Job) -> None:
    recipe, job = (overlay, overlaid) if kind == "overlay" else (bake, baked)
    product = recipe.make(job)
    file: Path = job.product / PROVENANCE
    kept = file.read_bytes()
    file.write_bytes(content)
    try:
        assert any(PROVENANCE in fault for fault in recipe.verify(job, product).faults)
        with pytest.raises(StateError, match=r"another product lies|exists already"):
            recipe.make(job)
    finally:
        file.write_bytes(kept)
    assert recipe.verify(job, product).faults == ()
