"""What an order owes its reader: prior art, capabilities with substitutes, additions that exist."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date

from runner.capabilities import lacking
from runner.checks.citations import find_order
from runner.checks.fault import Fault
from runner.craft.globs import permitted
from runner.model.order import KernelOrder, PatchOrder, WorkOrder, files_of
from runner.model.seat import SeatManifest

DELIVERED = {"kernel": ("kernels/cpu/", "kernels/cuda/", "serve/plugin/"), "patch": ("recipe/patches/",)}
"""Where a craftsperson's files may lie, by kind: nothing there plans, measures or judges."""

OTHER_SIDE = (
    "kernels/cpu/abi.h",
    "kernels/cpu/incumbent.cpp",
    "kernels/cpu/knock_out.cpp",
    "kernels/cuda/abi.h",
    "kernels/cuda/knock_out.cu",
)
"""What a candidate is measured against and called through: no glob of an order takes it."""


def duties(order: WorkOrder, manifest: SeatManifest | None) -> Iterator[Fault]:
    """Every duty that is not met."""
    try:
        date.fromisoformat(order.date)
    except ValueError:
        yield Fault(("date",), f"{order.date!r} is no day: write it as 2026-11-30")
    yield from _prior_art(order)
    yield from _capabilities(order, manifest)
    yield from _deliveries(order)
    for index, name in enumerate(order.scope.only_after if order.scope else ()):
        if find_order(name) is None:
            yield Fault(("scope", "only_after", index), f"there is no order {name}")
    yield from _supersedes(order)
    for index, addition in enumerate(order.added):
        if not _exists(order, addition.field):
            yield Fault(("added", index, "field"), f"the order has no field {addition.field}")


def _supersedes(order: WorkOrder) -> Iterator[Fault]:
    """The order that this one takes the place of is here, or it is said where it can be read."""
    name = order.supersedes
    if name == order.id:
        yield Fault(("supersedes",), f"{name} cannot take its own place: `version` counts the versions of an order")
    elif name is not None and order.archived_as is None and find_order(name) is None:
        message = f"there is no order {name}; `archived_as` says where one can be read that is not here"
        yield Fault(("supersedes",), message)


def unfilled(order: WorkOrder) -> Iterator[Fault]:
    """What a starter leaves for a person: ``<why>``."""
    yield from _unfilled((), order.model_dump(mode="python"))


def _unfilled(path: tuple[str | int, ...], value: object) -> Iterator[Fault]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _unfilled((*path, key), inner)
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            yield from _unfilled((*path, index), inner)
    elif isinstance(value, str) and value.startswith("<") and value.endswith(">"):
        yield Fault(path, f"still to be filled in: {value[1:-1]}")


def _prior_art(order: WorkOrder) -> Iterator[Fault]:
    """New code is not ordered before somebody looked for old code (campaign FL-61)."""
    if not isinstance(order, KernelOrder) or not (order.candidate.sources or order.candidate.files_allowed):
        return
    if order.design is None or not order.design.prior_art:
        message = "no prior art: say what exists that does this work, where, and why it is not simply used"
        yield Fault(("design", "prior_art"), message)


def _deliveries(order: WorkOrder) -> Iterator[Fault]:
    """What nobody could deliver: files of a kind that is made from the order alone, and files that judge."""
    kind, in_scope = getattr(order, "kind", ""), order.scope.files_allowed if order.scope else ()
    if in_scope and not isinstance(order, PatchOrder):
        why = "a kernel order names them under candidate"
        if not isinstance(order, KernelOrder):
            why = f"what kind {kind} asks for is made from the order alone: the runner takes no file for it"
        yield Fault(("scope", "files_allowed"), why)
    place = ("candidate", "files_allowed") if isinstance(order, KernelOrder) else ("scope", "files_allowed")
    forbidden = order.scope.files_forbidden if order.scope else ()
    folders = DELIVERED["kernel" if isinstance(order, KernelOrder) else "patch"]
    for index, glob in enumerate(files_of(order)):
        if not glob.startswith(folders):
            message = f"{glob} is nothing for a craftsperson: files of a {kind} order lie in "
            yield Fault((*place, index), message + " or ".join(folders))
        elif taken := [path for path in OTHER_SIDE if permitted(path, (glob,)) and not permitted(path, forbidden)]:
            message = f"{glob} takes {', '.join(taken)} too, which the candidate is measured against or called through"
            yield Fault((*place, index), message)


def _capabilities(order: WorkOrder, manifest: SeatManifest | None) -> Iterator[Fault]:
    for index, need in enumerate(order.capability):
        path = ("capability", index, "available")
        lacks = manifest is not None and need.name in lacking(manifest)
        if lacks and need.available == "yes":
            yield Fault(path, f"{need.name} is called available, seat {manifest.name if manifest else ''} lacks it")
        elif (lacks or need.available == "no") and need.substitute_if_absent is None:
            yield Fault(path, f"{need.name} is not available and the order names no substitute")


def _exists(order: WorkOrder, field: str) -> bool:
    """Whether the dotted path leads somewhere; entries of a list by number, or by their ``name`` or ``id``."""
    value: object = order
    for part in field.split("."):
        if isinstance(value, tuple):
            named = (one for one in value if part in (getattr(one, "name", None), getattr(one, "id", None)))
            value = value[int(part)] if part.isdigit() and int(part) < len(value) else next(named, None)
        elif isinstance(value, dict):
            value = value.get(part)
        else:
            value = getattr(value, part, None)
        if value is None:
            return False
    return True
