"""Overlays that nothing can make, or whose donor does not fit what it replaces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from recipe import overlay
from recipe.mini.donors import float8_experts
from runner.errors import InputError
from runner.model.order.overlay import Generated, Overlay
from runner.model.scalars import Plain
from tests.recipe.overlays import donor_pack, job_of, recipe_of, source_pack


def test_a_donor_of_another_size_than_plain_experts_is_refused(tmp_path: Path) -> None:
    """No expert of the source is coded, so only the plain weights say what size one has."""
    source = source_pack(tmp_path / "coded")
    float8_experts(source, tmp_path / "float8", Generated(tool="float8-experts", layers=(1, 2)))
    donor = donor_pack(tmp_path / "donor", hidden=256, intermediate=256)
    with pytest.raises(InputError, match="another size"):
        overlay.make(job_of(tmp_path, tmp_path / "float8", recipe_of(donor)))
    job = job_of(tmp_path, tmp_path / "float8", recipe_of(donor_pack(tmp_path / "fitting")))
    assert overlay.verify(job, overlay.make(job)).faults == ()


@pytest.mark.parametrize(
    "words",
    [
        {"donor": {"generated": {"tool": "requantised-experts", "layers": [1], "bits": 9}}},
        {"donor": {"generated": {"tool": "requantised-experts", "layers": [1], "bits": 0}}},
        {"donor": {"generated": {"tool": "rescaled-experts", "layers": []}}},
        {"donor": {"repository": "a b/c", "revision": "0" * 40}},
        {"donor": {"repository": "owner/../name", "revision": "0" * 40}},
        {"configuration": {"set": {"rms_norm_eps": Plain("1e999")}}},
    ],
    ids=str,
)
def test_an_overlay_that_nothing_can_make_is_no_overlay(words: dict[str, Any], tmp_path: Path) -> None:
    sound = recipe_of(tmp_path).model_dump(exclude_none=True)
    assert Overlay.model_validate(sound)
    with pytest.raises(ValidationError):
        Overlay.model_validate(sound | words)
