"""Whether a recipe's product is, once a boot of it has ended, what it was before any boot.

Bytes are compared with what the plan sealed; marks of files and folders show what was exchanged and put back meanwhile.
"""

from __future__ import annotations

import json
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from runner.digest import canonical_json
from runner.errors import CarveError
from runner.files import write_whole
from runner.model.boot import BootRecord
from runner.model.product import Product
from runner.plan import PRODUCT
from runner.steps.state import Run

MARKS = "product-marks.json"
"""What moves when something is written, renamed or exchanged, as it was before the first boot."""
PAYLOAD = "product-payload.json"
"""Digests of the product's files of weights with their marks, so that no file is hashed after every boot."""


def note_marks(run: Run) -> None:
    """Before the first boot: how the product lies on disk. Runs without a product pass."""
    product, note = run.built.product, run.folder / MARKS
    if product is not None and not note.exists():
        write_whole(note, canonical_json(_marks(Path(product.folder))))


def with_product(run: Run, record: BootRecord) -> BootRecord:
    """The record of an ended boot with what the product is now, where the boot was of the product."""
    product = run.built.product
    planned = {boot.id: boot for boot in run.plan.boots}.get(record.planned)
    if product is None or planned is None or not planned.product or planned.role == "desk":
        return record
    before = json.loads((run.folder / MARKS).read_bytes())
    changes = list(_changes(before, _marks(Path(product.folder))))
    found: dict[str, str] = {}
    try:
        found = _digests(run, product)
    except (CarveError, OSError) as error:
        changes.append(f"it cannot be read again: {' '.join(str(error).split())[:300]}")
    sealed = {name: digest for name, digest in run.plan.subjects.items() if name.startswith(PRODUCT)}
    known = {name: digest for name, digest in found.items() if f"{PRODUCT}{name}" in sealed}
    return record.model_copy(update={"product": known, "product_changes": tuple(changes)})


def _digests(run: Run, product: Product) -> dict[str, str]:
    # By name: what makes products imports git, which a seat's machine does not have.
    if product.kind == "pack":
        read = pkgutil.resolve_name("recipe.product:pack_digests")
        return dict(read(Path(product.folder), run.folder / PAYLOAD))
    verified = pkgutil.resolve_name("runner.steps.make:verify")(run)
    if verified.faults:
        raise CarveError(verified.faults[0])
    return dict(verified.digests)


def _marks(folder: Path) -> dict[str, dict[str, Any]]:
    """By path: identity with the time of change, the same without it, and the number of names."""
    return {
        path.relative_to(folder).as_posix(): {
            "mark": _mark(path),
            "shared": _mark(path, shared=True),
            "names": 1 if path.is_dir() or not path.exists() else path.stat().st_nlink,
        }
        for path in [folder, *sorted(folder.rglob("*"))]
    }


def _mark(path: Path, *, shared: bool = False) -> str:
    """Of a link itself, and of the file that it leads to."""
    stats = [path.lstat()]
    if path.is_symlink() and path.is_file():
        stats.append(path.stat())
    times = [f"{one.st_dev}:{one.st_ino}:{one.st_size}:{one.st_mtime_ns}" for one in stats]
    return "/".join(times if shared else [f"{mark}:{one.st_ctime_ns}" for mark, one in zip(times, stats, strict=True)])


def _changes(before: dict[str, dict[str, Any]], now: dict[str, dict[str, Any]]) -> Iterator[str]:
    """A file with several names gets and loses them elsewhere, which moves its time of change and no byte of it."""
    for name in sorted(before.keys() | now.keys()):
        old, new = before.get(name), now.get(name)
        if old is None or new is None:
            yield f"{name} was {'removed' if new is None else 'added'} since before the first boot"
        elif old["mark"] != new["mark"]:
            several = max(old["names"], new["names"]) > 1
            if not (several and old["shared"] == new["shared"]):
                what = "what lies in it" if name == "." else name
                yield f"{what} was written or exchanged since before the first boot"


__all__ = ["note_marks", "with_product"]
