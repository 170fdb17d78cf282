"""Products of products: each still says where all its parts are from, and nobody can tell that story otherwise."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from recipe import bake, overlay
from recipe.mini.random_pack import generate
from recipe.pack import read_pack
from recipe.product import Job
from recipe.provenance import history_of
from runner.card import _composition
from runner.digest import sha256_file
from runner.model.order.bake import Bake, Rate
from runner.model.product import PROVENANCE
from tests.recipe.overlays import SHAPE, donor_pack, edit, job_of, recipe_of, source_pack

BAKE = Bake(modules=("model.layers.0.self_attn.[qkv]_proj",), rates=(Rate(modules="*", bits=2),))
SECOND = {"model.layers.2": "model.layers.2"}


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pack whose layer 1 came from a donor."""
    folder = tmp_path_factory.mktemp("first")
    job = job_of(folder, source_pack(folder / "source"), recipe_of(donor_pack(folder / "donor")))
    overlay.make(job)
    return job.product


def told(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / PROVENANCE).read_bytes())
    return found


def layers(step: dict[str, Any]) -> set[str]:
    return {tensor["name"].split(".")[2] for tensor in step["tensors"]}


def made(job: Job) -> Path:
    recipe = bake if isinstance(job.recipe, Bake) else overlay
    assert recipe.verify(job, recipe.make(job)).faults == ()
    return job.product


def test_a_pack_that_no_recipe_made_has_no_history(first: Path) -> None:
    assert history_of(first.parent / "source") == [] and "history" not in told(first)


def test_an_overlay_of_an_overlay_tells_both(first: Path, tmp_path: Path) -> None:
    third = generate(tmp_path / "third", seed=7, **(SHAPE | {"expert_bits": ((2, 2),)}))
    second = made(job_of(tmp_path / "b", first, recipe_of(third, layers=SECOND)))
    (before,) = told(second)["history"]
    assert before == {"digest": sha256_file(first / PROVENANCE), "provenance": told(first)}
    assert (layers(before["provenance"]), layers(told(second))) == ({"1"}, {"2"})


def test_a_chain_of_three_is_told_in_order_and_flat(first: Path, tmp_path: Path) -> None:
    baked = made(job_of(tmp_path / "a", first, BAKE))
    last = made(job_of(tmp_path / "b", baked, recipe_of(first.parent / "donor", layers=SECOND)))
    steps = [entry["provenance"] for entry in history_of(last)]
    assert ["modules" in step for step in steps] == [False, True, False]
    assert not any("history" in step for step in steps)
    digests = [entry["digest"] for entry in history_of(last)]
    assert digests == [sha256_file(folder / PROVENANCE) for folder in (first, baked, last)]


def test_a_donor_that_was_made_tells_how(first: Path, tmp_path: Path) -> None:
    job = job_of(tmp_path, first.parent / "source", recipe_of(first))
    assert told(made(job))["donor"]["history"] == history_of(first)


@pytest.mark.parametrize("recipe", ["overlay", "bake"])
def test_a_history_told_otherwise_is_a_fault(recipe: str, first: Path, tmp_path: Path) -> None:
    job = job_of(tmp_path, first, BAKE if recipe == "bake" else recipe_of(first.parent / "donor", layers=SECOND))
    module = bake if recipe == "bake" else overlay
    product = module.make(job)
    edit(job.product / PROVENANCE, lambda value: value["history"][0]["provenance"]["tensors"].pop())
    faults = module.verify(job, product).faults
    assert len(faults) == 1 and "history[0]: provenance: tensors" in faults[0]
    edit(job.product / PROVENANCE, lambda value: value.pop("history"))
    assert module.verify(job, product).faults == (f"{PROVENANCE} says nothing of history",)


@pytest.mark.parametrize("content", [b"[]", b"\xff", b'{"history": 5}', b'{"history": ["a"], "tensors": 5}'])
def test_a_strange_note_is_told_by_its_digest(content: bytes, tmp_path: Path) -> None:
    source = source_pack(tmp_path / "source")
    (source / PROVENANCE).write_bytes(content)
    job = job_of(tmp_path, source, recipe_of(donor_pack(tmp_path / "donor")))
    (before,) = told(made(job))["history"]
    assert before["digest"] == sha256_file(source / PROVENANCE)
    assert {row[1] for row in _composition(read_pack(source))} == {"the pack's own"}


def test_the_card_counts_what_any_step_took_and_no_later_one_made_anew(first: Path, tmp_path: Path) -> None:
    baked = made(job_of(tmp_path / "a", first, BAKE))

    def from_donor(folder: Path) -> int:
        return sum(int(str(row[2])) for row in _composition(read_pack(folder)) if row[1] == "donor")

    weights = sum(module.weights for name, module in read_pack(first).modules.items() if ".1.mlp.experts." in name)
    assert from_donor(first) == from_donor(baked) == weights
    note: dict[str, Any] = {"modules": {name: {} for name in read_pack(first).modules if ".1.mlp.experts." in name}}
    edit(baked / PROVENANCE, lambda value: value.update(note))
    assert from_donor(baked) == 0
