"""The recipe of a patch order: a shadow of the engine's packages with the patched files in it.

The seat's own installation stays as it is. The product stands before it on the engine's import path, and every rank
says from its memory which patched modules it imported (:func:`tree_digest` is what it must say).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from recipe import patch_shadow
from recipe.closure import json_object
from recipe.disk import telling
from recipe.patch_set import PatchSet, load_set, refuse_other
from recipe.product import Job
from recipe.provenance import provenance_faults
from runner.digest import sha256_bytes, sha256_file, sha256_json
from runner.errors import CarveError, InputError
from runner.model.order.patch import Patching
from runner.model.product import PROVENANCE, Estimate, Product, Verified


@telling("the patches or the distribution cannot be read")
def estimate(job: Job) -> Estimate:
    """Patches, files and edits. Raises InputError for a patch that does not fit the installed distribution."""
    patches = _patches(job)
    _edited(job, patches)
    edits = sum(len(part.edits) for patch in patches.patches for part in patch.files)
    counts = {"patches": str(len(patches.patches)), "files": str(len(patches.files)), "edits": str(edits)}
    return Estimate(seconds=15, counts=counts)


@telling("the patched files cannot be written")
def make(job: Job) -> Product:
    """Compose, compile and import the patched files, then let the shadow appear.

    Raises InputError for a drifted file, an anchor that is not unique, a result that does not import and a digest other
    than the order's; StateError where the disk stands in the way.
    """
    patches, site = _patches(job), _site(job)
    provenance = _provenance(job, patches, site)
    text = json.dumps(provenance, indent=1).encode() + b"\n"
    job.note(f"import {len(patches.modules)} patched modules")
    patch_shadow.shadow(site, patches, job.product, notes={PROVENANCE: text})
    return Product(
        kind="tree",
        folder=str(job.product),
        digests=_digests(job.product),
        summary=_summary(provenance),
    )


@telling("the patched files cannot be read again")
def verify(job: Job, product: Product) -> Verified:
    """Every patched file again: content, markers, and that the distribution below is still pristine."""
    if not (job.product / PROVENANCE).is_file():
        return Verified(digests={}, summary=product.summary, faults=(f"{PROVENANCE} is missing",), provenance="")
    faults: list[str] = []
    told = (job.product / PROVENANCE).read_bytes()
    try:
        patches, site = _patches(job), _site(job)
        contents = {file: patches.compose(file, patch_shadow.read_file(site, file)) for file in patches.files}
        patch_shadow.verify_shadow(site, contents, {PROVENANCE: told}, job.product)
        wanted = _provenance(job, patches, site)
        faults += provenance_faults(json_object(told) or {}, wanted)
    except CarveError as error:
        faults.append(f"{error.what}: {error.where}: expected {error.expected}, found {error.found}")
    digests = {} if faults else _digests(job.product)
    text = told.decode(errors="replace")
    return Verified(digests=digests, summary=product.summary, faults=tuple(faults), provenance=text)


def tree_digest(modules: Mapping[str, tuple[str, Sequence[str]]]) -> str:
    """One digest for patched Python files: path to the file's SHA-256 and the markers in the module's memory."""
    return sha256_json({file: [digest, list(markers)] for file, (digest, markers) in sorted(modules.items())})


def _patches(job: Job) -> PatchSet:
    recipe = _recipe(job)
    patches = load_set(recipe.patches, job.patches)
    refuse_other(patches, recipe.distribution)
    return patches


def _edited(job: Job, patches: PatchSet) -> None:
    """InputError for a digest of a file that no patch edits: it would be compared with nothing."""
    strange = sorted(set(_recipe(job).after) - set(patches.files))
    if strange:
        raise InputError(
            "the order fixes a file that no patch edits",
            where=", ".join(strange),
            expected=f"one of {', '.join(patches.files)}",
            found=strange[0],
        )


def _recipe(job: Job) -> Patching:
    assert isinstance(job.recipe, Patching), "the order's kind types its recipe"
    return job.recipe


def _site(job: Job) -> Path:
    """The folder that holds the installed packages. InputError where the distribution is another one."""
    name, _, wanted = _recipe(job).distribution.partition("==")
    try:
        found = distribution(name)
    except PackageNotFoundError:
        raise InputError(
            "the distribution to patch is not installed",
            where=name,
            expected=f"{name}=={wanted}",
            found="none",
            next_step="run `scripts/setup engine`",
        ) from None
    if found.version != wanted:
        raise InputError("another version is installed", where=name, expected=wanted, found=found.version)
    return Path(str(found.locate_file("")))


def _provenance(job: Job, patches: PatchSet, site: Path) -> dict[str, Any]:
    files: dict[str, Any] = {}
    for file in patches.files:
        after = sha256_bytes(patches.compose(file, (site / file).read_bytes()))
        wanted = _recipe(job).after.get(file, after)
        if after != wanted:
            raise InputError(
                "the patches give another file than the order says", where=file, expected=wanted, found=after
            )
        files[file] = {"before": patches.before(file), "after": after, "markers": list(patches.markers(file))}
    if unknown := sorted(set(_recipe(job).after) - set(files)):
        raise InputError("the order fixes files that no patch edits", where=", ".join(unknown))
    return {
        "distribution": _recipe(job).distribution,
        "set": patches.digest,
        "patches": [{"name": patch.name, "version": patch.version, "why": patch.why} for patch in patches.patches],
        "files": files,
    }


def _digests(folder: Path) -> dict[str, str]:
    """``tree`` over the patched Python files, ``inputs`` over what the distribution's files were."""
    provenance = json.loads((folder / PROVENANCE).read_bytes())
    files: dict[str, Any] = provenance["files"]
    python = {
        file: (sha256_file(folder / file), facts["markers"]) for file, facts in files.items() if file.endswith(".py")
    }
    return {
        "tree": tree_digest(python),
        "provenance": sha256_file(folder / PROVENANCE),
        "inputs": sha256_json({file: facts["before"] for file, facts in files.items()}),
    }


def _summary(provenance: dict[str, Any]) -> dict[str, str]:
    named = {f"patch {patch['name']}": f"version {patch['version']}" for patch in provenance["patches"]}
    return {"distribution": provenance["distribution"], "files": str(len(provenance["files"]))} | named


__all__ = ["estimate", "make", "tree_digest", "verify"]
