"""A finished product whose provenance is junk or a lie: verification says so, and nobody takes junk for his product."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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


def lies(told: Any) -> Iterator[tuple[str, Any]]:
    """Every field of a provenance by its place, with a change made there: another value, a loss, an addition.

    Of a list its first and last item, of what bears a tensor's or file's name the first.
    """
    if isinstance(told, dict):
        yield "more", told | {"vendor": "says so"}
        named = [name for name in told if "." in name]
        for name in [name for name in told if name not in named[1:]]:
            yield f"without {name}", {key: value for key, value in told.items() if key != name}
            yield from ((f"{name}.{where}", told | {name: lie}) for where, lie in lies(told[name]))
    elif isinstance(told, list) and told:
        yield "shorter", told[:-1]
        for at in {0, len(told) - 1}:
            yield from ((f"{at}.{where}", [*told[:at], lie, *told[at + 1 :]]) for where, lie in lies(told[at]))
    else:
        yield "another", (not told) if isinstance(told, bool) else "a lie" if isinstance(told, str) else 7


@pytest.mark.parametrize("kind", ["overlay", "bake"])
def test_every_field_is_compared(kind: str, overlaid: Job, baked: Job) -> None:
    recipe, job = (overlay, overlaid) if kind == "overlay" else (bake, baked)
    product = recipe.make(job)
    file: Path = job.product / PROVENANCE
    kept = file.read_bytes()
    believed, tried = [], 0
    try:
        for where, lie in lies(json.loads(kept)):
            file.write_text(json.dumps(lie))
            believed += [where] if not recipe.verify(job, product).faults else []
            tried += 1
    finally:
        file.write_bytes(kept)
    assert believed == [] and tried > 30
    assert recipe.verify(job, product).faults == ()


def test_what_only_a_library_says_is_named_as_claimed(
    baked: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bits, errors of weights and tensors of its making are compared all the same."""
    monkeypatch.setitem(bake.QUANTISERS, "exllamav3", bake.QUANTISERS["native"])
    assert isinstance(baked.recipe, Bake)
    job = job_of(tmp_path, baked.standing, baked.recipe.model_copy(update={"quantiser": "exllamav3"}))
    product = bake.make(job)
    assert bake.verify(job, product).faults == ()
    told = json.loads((job.product / PROVENANCE).read_bytes())
    (facts,) = told["modules"].values()
    assert facts["claimed"] == {"output_error": None} and "output_error" not in facts
    facts["claimed"]["output_error"] = 0.001
    (job.product / PROVENANCE).write_text(json.dumps(told))
    assert bake.verify(job, product).faults == ()
    facts["claimed"]["licence"] = "ours"
    (job.product / PROVENANCE).write_text(json.dumps(told))
    (found,) = bake.verify(job, product).faults
    assert found.endswith("claimed: licence, which nobody can check")
