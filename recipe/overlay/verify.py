"""Read a finished overlay again and prove what it must be: what stayed, what went, what came and where it came from."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from recipe import json_stream, pack_write
from recipe.closure import INDEX, json_object
from recipe.disk import telling
from recipe.overlay.configuration import configurations
from recipe.overlay.donor import Donor
from recipe.overlay.make import beginning, indexed, provenance, resolved
from recipe.overlay.shards import Shard
from recipe.overlay.splice import Plan
from recipe.overlay.target import overlay_of, tensors_of
from recipe.pack import Pack, inspect
from recipe.payload import file_digests
from recipe.product import Job, Product, Verified
from recipe.provenance import provenance_faults
from recipe.shard_write import digest_of, same
from runner.digest import sha256_bytes, sha256_file, sha256_json, sha256_listing
from runner.model.product import PROVENANCE

_NO_PROVENANCE = f"{PROVENANCE} is missing or no JSON"
_LONGEST = 8 << 20
"""Bytes of a provenance that goes into the evidence as text; of a longer one its digest does."""
_NUMBERS = frozenset({"F16", "BF16", "F32"})
"""Types of what a coded module's scales may be stored as."""


@telling("the overlay cannot be read again")
def verify(job: Job, product: Product) -> Verified:
    """See :class:`recipe.product.Recipe`. Nothing that ``make`` noted is taken on trust."""
    folder = Path(product.folder)
    source, donor, plan = resolved(job)
    made, broken = inspect(folder)
    told = beginning(folder / PROVENANCE)
    faults = [" ".join(str(fault).split()) for fault in broken]
    files = file_digests([header.file for header in made.headers])
    if told is None:
        faults.append(_NO_PROVENANCE)
    else:
        donor.fetch(splice.donor for splice in plan.splices)
        originals = file_digests([header.file for header in source.headers])
        strange = list(_names(plan, made))
        faults += strange
        faults += _kept(overlay_of(job).unchanged, plan, made, originals, files)
        faults += _new(plan, made, donor)
        faults += _changed(plan, made)
        faults += _size(plan, source, made)
        faults += pack_write.file_faults(source, folder, _written(job, plan, made))
        if not broken and not strange:
            shards = _shards(job, plan, made, originals, files)
            wanted = partial(provenance, job, source, donor, plan, files=shards, where=made.tensors)
            faults += _provenance(folder, wanted)
    digests = {
        "header": made.header_digest(),
        "payload": sha256_listing(files),
        "small_files": made.small_files_digest(),
        "provenance": sha256_file(folder / PROVENANCE) if told is not None else sha256_bytes(b""),
        "inputs": sha256_json({part: told.get(part) for part in ("source", "donor")}) if told else sha256_bytes(b""),
    }
    return Verified(
        digests=digests,
        summary=product.summary,
        faults=tuple(faults),
        provenance=_text(folder / PROVENANCE),
    )


def _written(job: Job, plan: Plan, made: Pack) -> dict[str, dict[str, Any]]:
    """Files that must be what tensors and order make them, by name."""
    index = {INDEX: pack_write.index_of(made.headers)} if indexed(plan.source) else {}
    return configurations(overlay_of(job), plan, tensors_of(plan)) | index


def _provenance(folder: Path, wanted: Callable[[], dict[str, Any]]) -> list[str]:
    """What the product's own provenance says wrongly: nothing where it is what ``make`` writes, to the byte."""
    file = folder / PROVENANCE
    if json_stream.same(file, wanted()):
        return []
    told = json_object(file.read_bytes())
    if told is None:
        return [_NO_PROVENANCE]
    return provenance_faults(told, json.loads("".join(json_stream.lines(wanted()))))


def _text(file: Path) -> str:
    """The provenance for the evidence of a window."""
    short = file.is_file() and file.stat().st_size <= _LONGEST
    return file.read_text(encoding="utf-8", errors="replace") if short else ""


def _shards(job: Job, plan: Plan, made: Pack, originals: dict[str, str], files: dict[str, str]) -> dict[str, Shard]:
    """What ``make`` noted of each file, told again from the files."""
    found = {}
    for name, source in originals.items():
        how = "rewritten" if name in plan.rewritten else overlay_of(job).unchanged
        mine = [made.tensors[splice.name] for splice in plan.splices if splice.shard == name]
        tensors = {entry.name: digest_of(entry.file, entry.start, entry.nbytes) for entry in mine}
        found[name] = Shard(how, source, files[name], tensors)
    return found


def _names(plan: Plan, made: Pack) -> Iterator[str]:
    """Exactly what stayed and what came; above all, nothing that should have gone (campaign FL-38)."""
    expected = tensors_of(plan).keys()
    gone = plan.gone - expected
    for name in sorted(made.tensors.keys() - expected):
        yield f"{name} should have been dropped" if name in gone else f"{name} belongs to nothing"
    yield from (f"{name} is missing" for name in sorted(expected - made.tensors.keys()))


def _kept(how: str, plan: Plan, made: Pack, originals: dict[str, str], files: dict[str, str]) -> Iterator[str]:
    """Unchanged files as wholes, brought over as the order says; kept tensors of rewritten ones byte for byte."""
    for header in plan.source.headers:
        name = header.file.name
        unchanged = name not in plan.rewritten
        if unchanged and files.get(name) != originals[name]:
            yield f"{name} should be unchanged and is not"
        linked = (made.folder / name).exists() and header.file.resolve().samefile(made.folder / name)
        if linked != (unchanged and how == "link"):
            yield f"{name} is the source's own file" if linked else f"{name} is no link to the source's file"
        for entry in () if unchanged else header.entries:
            now = made.tensors.get(entry.name)
            if entry.name not in plan.gone and now is not None and not same(entry, now):
                yield f"{entry.name} should be unchanged and is not"


def _new(plan: Plan, made: Pack, donor: Donor) -> Iterator[str]:
    """What came is the donor's, as the donor has it now, and stands in the file that it was planned for."""
    for splice in plan.splices:
        now = made.tensors.get(splice.name)
        if now is None:
            continue
        found = digest_of(now.file, now.start, now.nbytes)
        theirs = digest_of(*donor.place(splice.donor), splice.donor.nbytes)
        if (now.dtype, now.shape) != (splice.donor.dtype, splice.shape) or found != theirs:
            yield f"{splice.name} is not the donor's {splice.donor.name}"
        elif now.dtype in _NUMBERS and not np.isfinite(now.read()).all():
            yield f"{splice.name} holds what is no finite number"
        if now.file.name != splice.shard:
            yield f"{splice.name} stands in {now.file.name}, planned was {splice.shard}"


def _changed(plan: Plan, made: Pack) -> Iterator[str]:
    """A donor whose experts are the source's own proves nothing about an overlay, however well it was made."""
    came = {splice.name: made.tensors.get(splice.name) for splice in plan.splices}
    gone = {entry.name: entry for entry in plan.dropped}
    if came.keys() == gone.keys() and all(now and same(gone[name], now) for name, now in came.items()):
        yield "the overlay changed nothing: what came from the donor is what stood there before"


def _size(plan: Plan, source: Pack, made: Pack) -> Iterator[str]:
    before, after = (sum(entry.nbytes for entry in pack.tensors.values()) for pack in (source, made))
    expected = plan.nbytes_in - plan.nbytes_out
    if after - before != expected:
        yield f"the pack grew by {after - before} bytes, planned was {expected}"
