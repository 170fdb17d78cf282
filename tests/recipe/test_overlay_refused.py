"""Overlays that nothing can make, or whose donor does not fit what it replaces."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from recipe import overlay
from recipe.mini.donors import float8_experts
from recipe.overlay.splice import dropped_of
from recipe.pack import read_pack
from runner.errors import InputError
from runner.model.order.overlay import Generated, Overlay
from runner.model.scalars import Plain
from tests.recipe.overlays import damage_byte, donor_pack, edit, job_of, recipe_of, source_pack


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


@pytest.mark.parametrize(("what", "layer"), [("mtp", "model.layers.1"), ("layer", "model.layers.3")])
def test_a_layer_of_the_other_kind_is_refused_before_anything_is_made(what: str, layer: str, tmp_path: Path) -> None:
    """Who means the drafts does not change the model, and the other way round."""
    source = source_pack(tmp_path / "source", draft_layers=1)
    donor = donor_pack(tmp_path / "donor", draft_layers=1)
    right = {"mtp": "model.layers.3", "layer": "model.layers.1"}
    for named, fits in ((layer, False), (right[what], True)):
        job = job_of(tmp_path, source, recipe_of(donor, what=what, layers={named: named}))
        if fits:
            assert overlay.estimate(job).counts["tensors out"] == "24"
            assert overlay.verify(job, overlay.make(job)).faults == ()
        else:
            for step in (overlay.estimate, overlay.make):
                with pytest.raises(InputError, match="layer of another kind"):
                    step(job)
            assert not job.product.exists()


def nested(config: dict[str, Any]) -> None:
    """The language model's sizes one level below; those above are a tower's."""
    config["text_config"] = {name: config.pop(name) for name in ("num_hidden_layers", "num_nextn_predict_layers")}


def flat(config: dict[str, Any]) -> None:
    """As it is."""


@pytest.mark.parametrize("form", [flat, nested])
@pytest.mark.parametrize(
    ("layer", "experts"),
    [("model.layers.{}", "mlp.experts"), ("model", "layers.{}.mlp.experts"), ("model.layers", "{}.mlp.experts")],
    ids=["by the layer", "by the model", "by the list"],
)
def test_no_spelling_and_no_nesting_makes_a_draft_another_layer(
    layer: str, experts: str, form: Callable[[dict[str, Any]], object], tmp_path: Path
) -> None:
    source = source_pack(tmp_path / "source", draft_layers=1)
    edit(source / "config.json", form)
    donor = donor_pack(tmp_path / "donor", draft_layers=1)
    for what, number in (("layer", 1), ("mtp", 3)):
        named = layer.format(number)
        recipe = recipe_of(donor, what=what, layers={named: named}, experts=experts.format(number))
        assert overlay.estimate(job_of(tmp_path / what, source, recipe)).counts["tensors out"] == "24"
        other = recipe.model_copy(update={"what": "mtp" if what == "layer" else "layer"})
        for step in (overlay.estimate, overlay.make):
            with pytest.raises(InputError, match="layer of another kind"):
                step(job_of(tmp_path / f"other {what}", source, other))


def test_a_donor_with_two_widths_in_a_served_module_is_refused_whatever_is_called_fused(tmp_path: Path) -> None:
    """Gate and up at K=3 and 2: the boot would say so after the whole work. Down is served alone."""
    source, donor = source_pack(tmp_path / "source"), donor_pack(tmp_path / "donor", expert_bits=((2, 3),))
    crossed = {"gate_proj": "down_proj", "down_proj": "gate_proj"}
    for fused in ([], [["gate_proj", "up_proj"]]):
        for step in (overlay.estimate, overlay.make):
            with pytest.raises(InputError, match="differ in bits"):
                step(job_of(tmp_path, source, recipe_of(donor, fused=fused, names=crossed)))
        assert overlay.estimate(job_of(tmp_path, source, recipe_of(donor, fused=fused))).counts["tensors in"] == "24"


def test_the_kind_of_a_layer_is_known_before_a_tool_makes_the_source(tmp_path: Path) -> None:
    standing = source_pack(tmp_path / "source", draft_layers=1)
    words = recipe_of(tmp_path).model_dump(exclude_none=True) | {"layers": {"model.layers.3": "model.layers.3"}}
    words["source"] = {"generated": {"tool": "float8-experts", "layers": [3]}}
    words["donor"] = {"generated": {"tool": "rescaled-experts", "layers": [3]}}
    assert overlay.estimate(job_of(tmp_path, standing, Overlay.model_validate(words | {"what": "mtp"}))).counts
    with pytest.raises(InputError, match="layer of another kind"):
        overlay.estimate(job_of(tmp_path, standing, Overlay.model_validate(words)))


def test_draft_layers_under_a_name_of_their_own_are_drafts(tmp_path: Path) -> None:
    """As in DeepSeek-V4's packs, where they have no number among the layers."""
    source = source_pack(tmp_path / "source")
    pack = replace(read_pack(source), folder=source)
    entry = next(entry for name, entry in pack.tensors.items() if name.startswith("model.layers.1.mlp.experts."))
    other = replace(entry, name=entry.name.replace("model.layers.1", "mtp.0"))
    header = next(header for header in pack.headers if header.file == entry.file)
    pack = replace(pack, headers=(replace(header, entries=(other,)),))
    recipe = recipe_of(source, what="mtp", layers={"model.layers.1": "mtp.0"})
    assert dropped_of(recipe, pack) == {"mtp.0": [other]}
    with pytest.raises(InputError, match="layer of another kind"):
        dropped_of(recipe.model_copy(update={"what": "layer"}), pack)


@pytest.mark.parametrize(
    ("donor", "message"),
    [
        ({"tool": "rescaled-experts", "layers": [2]}, "leaves a layer as it is"),
        ({"tool": "float8-experts", "layers": [1]}, "experts that are not EXL3"),
        ({"tool": "rescaled-experts", "layers": [1]}, ""),
        ({"tool": "rescaled-experts", "layers": [1, 2]}, ""),
    ],
    ids=str,
)
def test_a_tool_makes_what_the_overlay_takes(donor: dict[str, Any], message: str, tmp_path: Path) -> None:
    """Else the product would be the source again, which only the last gate of a whole run would say."""
    words = recipe_of(tmp_path).model_dump(exclude_none=True) | {"donor": {"generated": donor}}
    job = job_of(tmp_path, source_pack(tmp_path / "source"), Overlay.model_validate(words))
    if message:
        with pytest.raises(InputError, match=message):
            overlay.estimate(job)
    else:
        assert overlay.estimate(job).counts["donor made by"] == "rescaled-experts"


def test_a_donor_that_has_what_stood_there_before_changes_nothing(tmp_path: Path) -> None:
    source = source_pack(tmp_path / "source")
    other = shutil.copytree(source, tmp_path / "donor")
    for folder, sound in (("same", False), ("other", True)):
        job = job_of(tmp_path / folder, source, recipe_of(other))
        faults = overlay.verify(job, overlay.make(job)).faults
        assert (
            not faults
            if sound
            else faults == ("the overlay changed nothing: what came from the donor is what stood there before",)
        )
        entry = read_pack(other).tensors["model.layers.1.mlp.experts.1.up_proj.trellis"]
        damage_byte(entry.file, entry.start)
