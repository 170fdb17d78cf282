"""The product's files: which come over as they are, which are written anew, and what stands in each."""

from __future__ import annotations

from dataclasses import replace

from recipe.headers import Entry, Header
from recipe.overlay.donor import Donor
from recipe.overlay.splice import Plan, Splice
from recipe.product import Job
from recipe.shard_write import Part, in_order
from runner.errors import InputError
from runner.model.order import Overlay


def overlay_of(job: Job) -> Overlay:
    """The job's recipe, which is an overlay. Raises InputError for another one."""
    if not isinstance(job.recipe, Overlay):
        raise InputError("this is no overlay", where="recipe", expected="Overlay", found=type(job.recipe).__name__)
    return job.recipe


def kept_of(plan: Plan, header: Header) -> list[Entry]:
    """What stays of one file."""
    return [entry for entry in header.entries if entry.name not in plan.gone]


def coming_to(plan: Plan, file: str) -> list[Splice]:
    """What comes into one file."""
    return [splice for splice in plan.splices if splice.shard == file]


def parts_of(plan: Plan, header: Header, donor: Donor) -> list[Part]:
    """Everything of a file that is written anew, in order, with the places where the bytes lie now."""
    kept = [Part.of(entry) for entry in kept_of(plan, header)]
    new = []
    for splice in coming_to(plan, header.file.name):
        file, start = donor.place(splice.donor)
        new.append(Part(splice.name, splice.donor.dtype, splice.shape, file, start, splice.donor.nbytes))
    return in_order([*kept, *new])


def tensors_of(plan: Plan) -> dict[str, Entry]:
    """Every tensor of the product by name, for what a configuration says of it; places are those of before."""
    kept = {name: entry for name, entry in plan.source.tensors.items() if name not in plan.gone}
    return kept | {splice.name: replace(splice.donor, name=splice.name, shape=splice.shape) for splice in plan.splices}
