"""What a run made, taken out of its folder: only as the signed report sealed it, and whole or not at all."""

from __future__ import annotations

import shutil
from pathlib import Path

from recipe import whole_folder
from recipe.closure import small_files, weight_files
from recipe.disk import refusal
from recipe.product import pack_digests
from runner.attest.trust import Trust
from runner.errors import InputError, StateError, TrustError
from runner.ledger import find_report
from runner.model.base import Record
from runner.model.product import Product
from runner.model.verdict import Status
from runner.paths import RUNS, state_home
from runner.plan import PRODUCT
from runner.steps.make import MADE
from runner.verify import read_report, verify

_COMPARED = ("header", "payload", "provenance", "small_files")
"""Of a pack; ``small_files`` is not in reports from before it was sealed."""


class Taken(Record):
    """A product that is what its report says, byte for byte."""

    run: str
    verdict: Status
    kind: str
    folder: str
    """Where it lies in the run."""
    digests: dict[str, str]
    """As sealed, and as found."""
    unsealed: tuple[str, ...]
    """Digests that the report does not hold, so that nothing was compared there."""
    to: str = ""
    """Where the copy lies."""


def take(workspace: Path, trust: Trust, run: str, to: Path | None = None) -> Taken:
    """Compare a run's product with its report, and copy it ``to`` a new folder.

    Raises TrustError for a report that does not verify and a product that is another than the sealed one, InputError
    for a run that made none, for a patched tree, which is links into this machine's engine and cannot be taken
    elsewhere, and for a folder inside a pack, StateError where the product is not on this machine, the folder exists or
    the disk stands in the way.
    """
    place = find_report(workspace, run)
    verified = verify(place, trust, workspace)
    signed, _, _ = read_report(place, trust)
    sealed = {
        name.removeprefix(PRODUCT): digest for name, digest in signed.subjects.items() if name.startswith(PRODUCT)
    }
    if not sealed:
        raise InputError("this run made no product", where=str(place), expected="an overlay, a bake or a patch")
    product = _product(run)
    folder = Path(product.folder)
    if product.kind != "pack":
        raise InputError(
            "a patched tree stays where it is: it is links into this machine's engine",
            where=str(folder),
            expected="a pack",
            found=product.kind,
            next_step="`python -m recipe.patch_apply` brings the same patches to another installation",
        )
    try:
        found = _as_sealed(folder, sealed)
        if to is not None:
            _copy(folder, to, sealed)
    except OSError as error:
        raise refusal("the product cannot be taken out", to or folder, error) from error
    return Taken(
        run=run,
        verdict=verified.verdict,
        kind=product.kind,
        folder=str(folder),
        digests=found,
        unsealed=tuple(name for name in _COMPARED if name not in sealed),
        to=str(to or ""),
    )


def _product(run: str) -> Product:
    note = state_home() / RUNS / run / MADE
    if not note.is_file():
        raise StateError(
            "what this run made is not on this machine",
            where=str(note),
            expected="the folder of the run",
            found="none",
            next_step="ask where the run was executed, or execute its order here",
        )
    product = Product.model_validate_json(note.read_bytes())
    if not Path(product.folder).is_dir():
        raise StateError(
            "what this run made is gone", where=product.folder, expected="a folder", next_step="execute its order again"
        )
    return product


def _as_sealed(folder: Path, sealed: dict[str, str]) -> dict[str, str]:
    """The pack's digests, from its bytes. TrustError where one is another than the sealed one."""
    found = pack_digests(folder)
    for name in _COMPARED:
        if name in sealed and found[name] != sealed[name]:
            raise TrustError(
                "the product is not the one that was sealed",
                where=str(folder),
                expected=f"{name} {sealed[name]}",
                found=found[name],
                next_step="execute its order again; nobody has judged what lies there",
            )
    return found


def _copy(folder: Path, to: Path, sealed: dict[str, str]) -> None:
    """A copy of its own: no link into the run's folder, and read again before it takes its name."""
    for parent in to.absolute().resolve().parents:
        if weight_files(parent):
            raise InputError(
                "a copy inside a pack would make another pack of it",
                where=str(parent),
                expected="a folder outside every pack",
                found=str(to),
            )
    with whole_folder.anew(to) as partial:
        for file in (*weight_files(folder), *small_files(folder)):
            target = partial / file.relative_to(folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)
        _as_sealed(partial, sealed)


__all__ = ["Taken", "take"]
