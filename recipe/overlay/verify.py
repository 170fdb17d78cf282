"""Read a finished overlay again and prove what it must be: what stayed, what went, what came and where it came from."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from recipe.closure import INDEX, json_object
from recipe.overlay.configuration import configurations
from recipe.overlay.donor import Donor
from recipe.overlay.make import resolved
from recipe.overlay.splice import Plan
from recipe.overlay.target import overlay_of, tensors_of
from recipe.pack import Pack, inspect
from recipe.payload import file_digests
from recipe.product import Job, Product, Verified
from recipe.shard_write import digest_of, same
from runner.digest import sha256_bytes, sha256_file, sha256_json, sha256_listing
from runner.model.product import PROVENANCE

_NUMBERS = frozenset({"F16", "BF16", "F32"})
"""Types of what a coded module's scales may be stored as."""


def verify(job: Job, product: Product) -> Verified:
    """See :class:`recipe.product.Recipe`. Nothing that ``make`` noted is taken on trust."""
    folder = Path(product.folder)
    source, donor, plan = resolved(job)
    made, broken = inspect(folder)
    told = json_object((folder / PROVENANCE).read_bytes()) if (folder / PROVENANCE).is_file() else None
    faults = [" ".join(str(fault).split()) for fault in broken]
    files = file_digests([header.file for header in made.headers])
    if told is None:
        faults.append(f"{PROVENANCE} is missing or no JSON")
    else:
        donor.fetch(splice.donor for splice in plan.splices)
        originals = file_digests([header.file for header in source.headers])
        faults += _names(plan, made)
        faults += _kept(plan, source, made, originals, files)
        faults += _size(plan, source, made)
        faults += _small(job, plan, source, made)
        try:
            faults += _new(plan, made, donor, told)
            faults += _provenance(told, source, donor, originals, files)
        except (AttributeError, KeyError, TypeError):
            faults.append(f"{PROVENANCE} has another form than an overlay's")
    digests = {
        "header": made.header_digest(),
        "payload": sha256_listing(files),
        "provenance": sha256_file(folder / PROVENANCE) if told is not None else sha256_bytes(b""),
        "inputs": sha256_json({part: told.get(part) for part in ("source", "donor")}) if told else sha256_bytes(b""),
    }
    return Verified(
        digests=digests,
        summary=product.summary,
        faults=tuple(faults),
        provenance=json.dumps(told, ensure_ascii=False),
    )


def _names(plan: Plan, made: Pack) -> Iterator[str]:
    """Exactly what stayed and what came; above all, nothing that should have gone (campaign FL-38)."""
    expected = tensors_of(plan).keys()
    gone = {entry.name for entry in plan.dropped} - expected
    for name in sorted(made.tensors.keys() - expected):
        yield f"{name} should have been dropped" if name in gone else f"{name} belongs to nothing"
    yield from (f"{name} is missing" for name in sorted(expected - made.tensors.keys()))


def _kept(plan: Plan, source: Pack, made: Pack, originals: dict[str, str], files: dict[str, str]) -> Iterator[str]:
    """Unchanged files as wholes, kept tensors of rewritten ones byte for byte; those never in the source's own file."""
    gone = {entry.name for entry in plan.dropped}
    for header in source.headers:
        name = header.file.name
        if name not in plan.rewritten:
            if files.get(name) != originals[name]:
                yield f"{name} should be unchanged and is not"
            continue
        if (made.folder / name).exists() and header.file.resolve().samefile(made.folder / name):
            yield f"{name} was written over in place"
        for entry in header.entries:
            now = made.tensors.get(entry.name)
            if entry.name not in gone and now is not None and not same(entry, now):
                yield f"{entry.name} should be unchanged and is not"


def _new(plan: Plan, made: Pack, donor: Donor, told: dict[str, Any]) -> Iterator[str]:
    """What came is the donor's, as the donor has it now and as the provenance says."""
    noted = {str(one["name"]): one for one in told["tensors"]}
    if noted.keys() != {splice.name for splice in plan.splices}:
        yield "the provenance speaks of other tensors than those that came"
    for splice in plan.splices:
        now, one = made.tensors.get(splice.name), noted.get(splice.name)
        if now is None or one is None:
            continue
        found = digest_of(now.file, now.start, now.nbytes)
        theirs = digest_of(*donor.place(splice.donor), splice.donor.nbytes)
        if (now.dtype, now.shape) != (splice.donor.dtype, splice.shape) or found != theirs:
            yield f"{splice.name} is not the donor's {splice.donor.name}"
        elif now.dtype in _NUMBERS and not np.isfinite(now.read()).all():
            yield f"{splice.name} holds what is no finite number"
        place = [now.start, now.stop]
        if (one["payload"], one["bytes"], one["file"]) != (found, place, now.file.name):
            yield f"{splice.name} is not where or what the provenance says"


def _size(plan: Plan, source: Pack, made: Pack) -> Iterator[str]:
    before, after = (sum(entry.nbytes for entry in pack.tensors.values()) for pack in (source, made))
    expected = plan.nbytes_in - plan.nbytes_out
    if after - before != expected:
        yield f"the pack grew by {after - before} bytes, planned was {expected}"


def _small(job: Job, plan: Plan, source: Pack, made: Pack) -> Iterator[str]:
    """Configuration as derived, every other small file as it was, nothing forgotten and nothing added."""
    folder, derived = made.folder, configurations(overlay_of(job), plan, tensors_of(plan))
    for name, content in derived.items():
        found = json_object((folder / name).read_bytes()) if (folder / name).is_file() else None
        if found != json.loads(json.dumps(content)):
            yield f"{name} is not what the headers and the order's edits make it"
    own = {*derived, INDEX, PROVENANCE}
    theirs = {str(file.relative_to(source.folder)) for file in source.small_files()} - own
    mine = {str(file.relative_to(folder)) for file in made.small_files()} - own
    yield from (f"{name} was not copied" for name in sorted(theirs - mine))
    yield from (f"{name} belongs to nothing" for name in sorted(mine - theirs))
    for name in sorted(mine & theirs):
        if sha256_file(folder / name) != sha256_file(source.folder / name):
            yield f"{name} should be unchanged and is not"


def _provenance(
    told: dict[str, Any], source: Pack, donor: Donor, originals: dict[str, str], files: dict[str, str]
) -> Iterator[str]:
    if told["source"]["payload_digest"] != sha256_listing(originals):
        yield "the source is not what the provenance says it was"
    if told["donor"] != json.loads(json.dumps(donor.identity())):
        yield "the donor is not what the provenance says it was"
    for name, one in told["files"].items():
        if (one["source"], one["digest"]) != (originals.get(name), files.get(name)):
            yield f"{name} is not what the provenance says"
