"""Make the overlaid pack: file by file, memory a few chunks whatever its size; whole or not at all."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from carve_kernels.exl3 import pack_format

from recipe import json_stream, pack_write, whole_folder
from recipe.closure import INDEX, json_object
from recipe.codes import blanks
from recipe.disk import telling
from recipe.headers import Entry, read_header
from recipe.overlay import shards
from recipe.overlay.configuration import check_configurations, configurations
from recipe.overlay.donor import Donor, RemoteDonor, open_donor, open_pack
from recipe.overlay.shards import Shard
from recipe.overlay.splice import Plan, Splice, resolve
from recipe.overlay.target import coming_to, kept_of, overlay_of, tensors_of
from recipe.pack import Pack, read_pack
from recipe.payload import file_digests, identity
from recipe.product import Job, Product
from recipe.provenance import history_of
from runner.digest import canonical_json, sha256_file, sha256_json, sha256_listing, sha256_tree
from runner.errors import StateError
from runner.files import write_whole
from runner.model.product import PROVENANCE

BEGUN = "begun.json"
"""Beside the unfinished folder: what is being made of what, so that nothing else goes on with it."""
_TENSORS = "tensors"
"""Where the part of a provenance begins that grows with the pack: nothing else stands behind it but sums."""
_WRITERS = 4
"""Files written at once, more than a small machine has cores: while the disk settles one, others are hashed."""


@telling("the overlay cannot be written")
def make(job: Job) -> Product:
    """Make the product, or find it made. See :class:`recipe.product.Recipe`."""
    source, donor, plan = resolved(job)
    if _made(job, source, donor):
        whole_folder.tidy(job.product)
    else:
        with whole_folder.building(job.product) as partial:
            _build(job, source, donor, plan, partial)
    return _product(job, plan)


def _made(job: Job, source: Pack, donor: Donor) -> bool:
    """Whether the product is there already, by its own provenance: of this recipe, this source and this donor."""
    file = job.product / PROVENANCE
    told = beginning(file) or {}
    before = told.get("source")
    headers = before.get("header_digest") if isinstance(before, dict) else None
    now = [overlay_of(job).model_dump(mode="json", exclude_none=True), source.header_digest(), donor.identity()]
    same: bool = [told.get("recipe"), headers, told.get("donor")] == json.loads(json.dumps(now))
    return same


def beginning(file: Path) -> dict[str, Any] | None:
    """What an overlay's provenance says of inputs and files; what it says of every tensor may be left out.

    None where there is none or no JSON.
    """
    return json_stream.beginning(file, _TENSORS) if file.is_file() else None


def resolved(job: Job) -> tuple[Pack, Donor, Plan]:
    """Source, donor and overlay with its configuration, from headers alone. Raises InputError where they do not fit."""
    recipe = overlay_of(job)
    source = read_pack(job.standing) if recipe.source is None else open_pack(job, recipe.source, "source")
    donor = open_donor(job, recipe.donor, recipe.layers)
    plan = resolve(recipe, source, donor.entries)
    check_configurations(recipe, plan)
    return source, donor, plan


def _build(job: Job, source: Pack, donor: Donor, plan: Plan, partial: Path) -> None:
    recipe = overlay_of(job)
    _begin(job, partial, source, donor)
    _room(job, partial, source, plan, donor)
    small = source.small_files_digest()
    donor.fetch(splice.donor for splice in plan.splices)
    with ThreadPoolExecutor(_WRITERS) as pool:
        made = pool.map(lambda header: shards.bring(job, partial, header, plan, donor), source.headers)
        files = {header.file.name: shard for header, shard in zip(source.headers, made, strict=True)}
    pack_write.copy_small_files(source.folder, partial)
    for name, content in configurations(recipe, plan, tensors_of(plan)).items():
        pack_write.write_json(partial / name, content)
    if indexed(source):
        pack_write.write_index(partial, [read_header(partial / header.file.name) for header in source.headers])
    where = {entry.name: entry for name in plan.rewritten for entry in read_header(partial / name).entries}
    coded = pack_format.modules(splice.name for splice in plan.splices)
    for fault in blanks(coded, where):  # of a donor elsewhere only headers were read before
        raise fault
    pack_write.write_json(partial / PROVENANCE, provenance(job, source, donor, plan, files=files, where=where))
    job.note("read the source again")
    _unchanged(source, {name: shard.source for name, shard in files.items()}, small)
    whole_folder.publish(partial, job.product)


def _begin(job: Job, partial: Path, source: Pack, donor: Donor) -> None:
    """Start the unfinished folder, or go on with it where it is the same work. Raises StateError where it is not."""
    shared = overlay_of(job).unchanged == "link"
    inputs = {header.file.name: identity(header.file.resolve(), shared=shared) for header in source.headers}
    begun = {
        "recipe": overlay_of(job).model_dump(mode="json"),
        "source": {
            "headers": source.header_digest(),
            "files": inputs,
            "small files": source.small_files_digest(),
        },
        "donor": [donor.identity(), donor.marks()],
        "code": sha256_tree(Path(__file__).parent.parent, Path(__file__).parent.parent.glob("*.py"))
        + sha256_tree(Path(__file__).parent, Path(__file__).parent.glob("*.py")),
    }
    path = partial.parent / BEGUN
    if not path.is_file():
        whole_folder.fresh(partial)
        write_whole(path, canonical_json(begun))
        return
    before = json_object(path.read_bytes()) or {}
    changed = [name for name in begun if before.get(name) != json.loads(canonical_json(begun[name]))]
    if changed:
        raise StateError(
            "an overlay was begun here with other arguments, inputs or code",
            where=str(partial.parent),
            expected="the same as when it was begun",
            found=f"another {', '.join(changed)}",
            next_step="remove that folder to start again",
        )


def _room(job: Job, partial: Path, source: Pack, plan: Plan, donor: Donor) -> None:
    """StateError where the disk cannot hold what is still to be written."""
    copies = overlay_of(job).unchanged == "copy"
    wanted = 0
    for header in source.headers:
        name, target = header.file.name, partial / header.file.name
        size = header.file.stat().st_size if copies else 0
        if name in plan.rewritten:
            coming = sum(splice.donor.nbytes for splice in coming_to(plan, name))
            size = coming + sum(entry.nbytes for entry in kept_of(plan, header))
        wanted += max(0, size - (target.stat().st_size if target.is_file() else 0))
    if isinstance(donor, RemoteDonor) and job.work.stat().st_dev == partial.stat().st_dev:
        fetched = sum(file.stat().st_size for file in (job.work / "donor").rglob("*") if file.is_file())
        wanted += max(0, plan.nbytes_in - fetched)
    free = shutil.disk_usage(partial).free
    if free < wanted:
        raise StateError(
            "the disk is too full for this overlay",
            where=str(partial),
            expected=f"{wanted:,} bytes free",
            found=f"{free:,}",
            next_step="free some room, or let unchanged files be linked or reflinked",
        )


def indexed(source: Pack) -> bool:
    """Whether the product has an index: as its source, which may be one file without."""
    return (source.folder / INDEX).is_file() or len(source.headers) > 1


def _unchanged(source: Pack, read: dict[str, str], small: str) -> None:
    """The source again, all of it: what was read is what lies there. Raises StateError."""
    now = file_digests([header.file for header in source.headers])
    changed = sorted(name for name, digest in now.items() if digest != read[name])
    if source.small_files_digest() != small:
        changed.append("a small file")
    if changed:
        raise StateError(
            "the source changed while it was being read",
            where=str(source.folder),
            expected="the same bytes before and after",
            found=", ".join(changed),
            next_step="find out who writes there, then start again",
        )


def provenance(
    job: Job, source: Pack, donor: Donor, plan: Plan, *, files: dict[str, Shard], where: Mapping[str, Entry]
) -> dict[str, Any]:
    """Where every part of the product comes from; no times and no places of this disk, so the same work is the same.

    ``where`` are the product's tensors in rewritten files. All of it can be told again from the files (``verify``).
    What is said of every tensor comes one by one, for :mod:`recipe.json_stream`.
    """
    recipe, history = overlay_of(job), history_of(source.folder)
    return {
        **({"history": history} if history else {}),
        "recipe": recipe.model_dump(mode="json", exclude_none=True),
        "source": {
            "header_digest": source.header_digest(),
            "payload_digest": sha256_listing({name: shard.source for name, shard in files.items()}),
            "small_files_digest": source.small_files_digest(),
        },
        "donor": donor.identity(),
        "files": {
            name: {"how": shard.how, "source": shard.source, "digest": shard.digest} for name, shard in files.items()
        },
        _TENSORS: (_told(splice, files[splice.shard], where[splice.name]) for splice in plan.splices),
        "dropped": (
            {"name": entry.name, "file": entry.file.name, "dtype": entry.dtype, "shape": entry.shape}
            for entry in plan.dropped
        ),
        "bytes": {"in": plan.nbytes_in, "out": plan.nbytes_out, "difference": plan.nbytes_in - plan.nbytes_out},
    }


def _told(splice: Splice, file: Shard, now: Entry) -> dict[str, Any]:
    return {
        "name": splice.name,
        "donor": splice.donor.name,
        "donor_file": splice.donor.file.name,
        "donor_bytes": [splice.donor.start, splice.donor.stop],
        "dtype": splice.donor.dtype,
        "donor_shape": splice.donor.shape,
        "shape": splice.shape,
        "payload": file.tensors[splice.name],
        "file": splice.shard,
        "bytes": [now.start, now.stop],
    }


def _product(job: Job, plan: Plan) -> Product:
    """The record of a finished product. Its files were hashed as they were written; ``verify`` reads them again."""
    kept = beginning(job.product / PROVENANCE) or {}
    inputs = sha256_json({"source": kept["source"], "donor": kept["donor"]})
    how = [file["how"] for file in kept["files"].values()]
    return Product(
        kind="pack",
        folder=str(job.product),
        digests={
            "header": (made := read_pack(job.product)).header_digest(),
            "small_files": made.small_files_digest(),
            "payload": sha256_listing({name: file["digest"] for name, file in kept["files"].items()}),
            "provenance": sha256_file(job.product / PROVENANCE),
            "inputs": inputs,
        },
        summary={
            "tensors replaced": str(len(plan.dropped)),
            "tensors from the donor": str(len(plan.splices)),
            "bytes out": str(plan.nbytes_out),
            "bytes in": str(plan.nbytes_in),
            "files rewritten": str(how.count("rewritten")),
            "files unchanged": str(len(how) - how.count("rewritten")),
        },
    )
