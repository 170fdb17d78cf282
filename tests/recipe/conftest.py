"""A finished overlay that tests look at and never change."""

from __future__ import annotations

from pathlib import Path

import pytest

from recipe import overlay
from recipe.product import Job
from runner.model.product import Product
from tests.recipe.overlays import donor_pack, job_of, recipe_of, source_pack


@pytest.fixture(scope="session")
def packs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Source and donor."""
    folder = tmp_path_factory.mktemp("packs")
    return source_pack(folder / "source"), donor_pack(folder / "donor")


@pytest.fixture(scope="session")
def finished(packs: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[Job, Product]:
    """Experts of one layer by the donor's."""
    source, donor = packs
    job = job_of(tmp_path_factory.mktemp("finished"), source, recipe_of(donor))
    return job, overlay.make(job)
