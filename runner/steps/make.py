"""What a recipe order asks for, made in the run's own folder before anything is sealed or booted."""

from __future__ import annotations

import pkgutil
from dataclasses import replace
from pathlib import Path

from recipe.product import Job, Recipe
from runner.craft.candidate import laid_over, refusable, taken
from runner.digest import canonical_json
from runner.errors import InputError
from runner.files import write_whole
from runner.model.base import Record
from runner.model.order import Order, RecipeOrder
from runner.model.product import Estimate, Product, Verified
from runner.model.seat import SeatManifest
from runner.paths import source_root
from runner.plan import PRODUCT
from runner.steps.state import Run

_RECIPES = {"overlay": "recipe.overlay", "bake": "recipe.bake", "patch": "recipe.patch"}
"""Module by order kind, loaded when used: :class:`recipe.product.Recipe`."""
MADE = "product.json"
PATCHES = Path("recipe/patches")


def make(run: Run) -> Run:
    """Make the product, or find what an earlier attempt made. Orders of other kinds pass.

    A frozen candidate of which nothing can be made is refused for good: a CandidateError. Otherwise raises InputError
    for a recipe that does not fit its inputs, StateError where the disk stands in the way.
    """
    if not isinstance(run.order.order, RecipeOrder):
        return run
    path = run.folder / MADE
    if path.exists():
        product = Product.model_validate_json(path.read_bytes())
    else:
        job = replace(job_of(run.order.order, run.manifest, run.folder), note=run.progress.note)
        recipe = recipe_of(run.order.order)
        with refusable(run.folder, run.journal):
            run.progress.begin(f"make the {run.order.order.kind}", recipe.estimate(job).seconds)
            product = recipe.make(job)
        write_whole(path, canonical_json(product.model_dump(mode="json")))
    subjects = run.built.subjects | {f"{PRODUCT}{name}": digest for name, digest in product.digests.items()}
    return replace(run, built=replace(run.built, subjects=subjects, product=product))


def verify(run: Run) -> Verified:
    """The product as it lies on disk now, compared with its order. Raises InputError where the run made none."""
    order, product = run.order.order, run.built.product
    if product is None or not isinstance(order, RecipeOrder):
        raise InputError(
            "this run made no product", where=order.id, expected="an order with a recipe", found=order.kind
        )
    return recipe_of(order).verify(job_of(order, run.manifest, run.folder), product)


def estimate(order: RecipeOrder, manifest: SeatManifest) -> Estimate:
    """What making the product will take; nothing is written and no network is used. Raises InputError."""
    return recipe_of(order).estimate(job_of(order, manifest, Path("/nonexistent")))


def recipe_of(order: Order) -> Recipe:
    """The recipe of the order's kind."""
    recipe: Recipe = pkgutil.resolve_name(_RECIPES[order.kind])
    return recipe


def job_of(order: RecipeOrder, manifest: SeatManifest, folder: Path) -> Job:
    """The job, with the product in ``folder`` or in the pack store that the order names."""
    assert isinstance(order.recipe, Record), "runnable refuses a recipe order without a recipe"
    store = getattr(order.recipe, "store", None)
    product = source_root() / store / f"{order.id}-{folder.name}" if store else folder / "product"
    return Job(
        recipe=order.recipe,
        standing=source_root() / manifest.pack,
        root=source_root(),
        product=product,
        work=folder / "work",
        patches=laid_over(folder, source_root() / PATCHES) if taken(folder) else None,
    )


__all__ = ["estimate", "job_of", "make", "recipe_of", "verify"]
