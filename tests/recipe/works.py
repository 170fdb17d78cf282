"""Work that tests kill and starve: overlay, bake, merge and both kinds of patching, on inputs made from a seed."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recipe import bake, overlay, patch_apply, patch_set, patch_shadow
from recipe.mini.donors import rescaled_experts
from recipe.mini.random_pack import generate
from recipe.patch_set import Edit, FilePatch, Patch, PatchSet
from runner.digest import sha256_bytes
from runner.model.order.bake import Bake, Rate
from runner.model.order.overlay import Generated
from runner.paths import source_root
from tests.recipe.overlays import SHAPE, contents, job_of, recipe_of

SIZES = ("small", "second", "mini")
"""A fraction of a second, about a second, and the small model's own pack."""
_MINI = source_root() / "recipe/mini/pack"


def absent_or_complete(product: Path, expected: dict[str, bytes]) -> bool:
    """Whether the product is there; AssertionError where a part of it is."""
    if not product.exists():
        return False
    assert contents(product) == expected, "the product is complete or absent"
    return True


@dataclass(frozen=True)
class Work:
    """One piece of work, to be done in any folder; the product is that folder's ``product``."""

    inputs: tuple[Path, ...]
    """Folders that must stay what they were."""
    do: Callable[[Path], object]
    """Do it, or go on with it, in a folder."""
    prepare: Callable[[Path], object] = lambda _: None
    """What lies in the folder before the work begins."""
    finished: Callable[[Path, dict[str, bytes]], bool] = absent_or_complete
    """Whether what was left is the product with these contents; AssertionError where it is half of it."""


def overlay_work(folder: Path, size: str) -> Work:
    """Experts of one layer by a donor's."""
    if size == "mini":
        source = _MINI
        rescaled_experts(source, folder / "donor", Generated(tool="rescaled-experts", layers=(1,)))
    else:
        larger = {"hidden": 1024, "intermediate": 512, "experts": 64, "layers": 4} if size == "second" else {}
        shape: dict[str, Any] = SHAPE | larger
        source = generate(folder / "source", seed=1, **shape)
        generate(folder / "donor", seed=2, **shape)
    recipe = recipe_of(folder / "donor")
    return Work((source, folder / "donor"), lambda place: overlay.make(job_of(place, source, recipe)))


def bake_work(folder: Path, size: str) -> Work:
    """Attention coded at three bits, from the first byte to the pack."""
    parts = {"small": "[k]", "second": "[qkvo]", "mini": "[k]"}[size]
    layers = "[01]" if size == "mini" else "0"
    source = _MINI
    if size != "mini":
        small: dict[str, Any] = {"hidden": 128, "intermediate": 128, "experts": 2, "topk": 1, "vocabulary": 300}
        source = generate(folder / "source", layers=1, **small)
    recipe = Bake(modules=(f"model.layers.{layers}.self_attn.{parts}_proj",), rates=(Rate(modules="*", bits=3),))
    return Work((source,), lambda place: bake.make(job_of(place, source, recipe)))


def merge_work(folder: Path, size: str) -> Work:
    """Only the merge: the layers lie there coded."""
    if size == "second":
        source = generate(folder / "source", layers=4, hidden=1024, intermediate=512, experts=48, topk=1)
        recipe = Bake(modules=("model.layers.0.self_attn.k_proj",), rates=(Rate(modules="*", bits=1),))
        whole = Work((source,), lambda place: bake.make(job_of(place, source, recipe)))
    else:
        whole = bake_work(folder, size)
    whole.do(folder / "coded")

    def prepare(place: Path) -> None:
        if not (place / "work").exists():
            shutil.copytree(folder / "coded/work", place / "work")

    return Work(whole.inputs, whole.do, prepare)


def patch_work(folder: Path, size: str) -> Work:
    """A shadow of a distribution whose patched modules are imported."""
    site, patches = distribution(folder / "site", 400 if size == "second" else 3)
    notes = {"provenance.json": b"{}\n"}
    return Work((site,), lambda place: patch_shadow.shadow(site, patches, place / "product", sys.executable, notes))


def patch_in_place_work(folder: Path, size: str) -> Work:
    """A distribution's own files: each is pristine or patched, nothing else."""
    pristine, patches = distribution(folder / "site", 150 if size == "second" else 3)
    before = contents(pristine)

    def prepare(place: Path) -> None:
        if not (place / "product").exists():
            shutil.copytree(pristine, place / "product")

    def finished(product: Path, expected: dict[str, bytes]) -> bool:
        now = {name: (product / name).read_bytes() for name in before}
        half = [name for name, content in now.items() if content not in (before[name], expected[name])]
        assert not half, "each file is pristine or patched"
        return all(now[name] == expected[name] for name in now)

    return Work((pristine,), lambda place: patch_apply.apply(place / "product", patches), prepare, finished)


def distribution(site: Path, count: int) -> tuple[Path, PatchSet]:
    """A package of ``count`` modules, a patch that edits each, and as many files beside them."""
    (site / "engine").mkdir(parents=True)
    (site / "engine/__init__.py").write_bytes(b"")
    parts = []
    for number in range(count):
        name, text = f"engine/part_{number}.py", f"COUNT = {number}\n" + "# a line of the engine\n" * 1000
        (site / name).write_text(text)
        (site / f"engine/beside_{number}.bin").write_bytes(number.to_bytes(2, "little") * 500)
        edit = Edit(anchor=f"COUNT = {number}", place="replace", text=f"COUNT = {number + 1}")
        module = f"engine.part_{number}"
        digest = sha256_bytes(text.encode())
        parts.append(FilePatch(file=name, before=digest, after="0" * 64, imports=module, edits=(edit,)))
    patch = Patch(
        schema_version=1, name="count", version=1, distribution="engine==1.0", why="a test", files=tuple(parts)
    )
    told = [
        part.model_copy(update={"after": sha256_bytes(patch_set.patched(patch, part, (site / part.file).read_bytes()))})
        for part in parts
    ]
    return site, PatchSet((patch.model_copy(update={"files": tuple(told)}),))


WORKS: dict[str, Callable[[Path, str], Work]] = {
    "overlay": overlay_work,
    "bake": bake_work,
    "merge": merge_work,
    "patch": patch_work,
    "patch-in-place": patch_in_place_work,
}
