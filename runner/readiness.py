"""What stands between a good order and a run: parts that are declared and not there yet. Its plan stays a draft."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from runner import ledger
from runner.attest.trust import load_trust
from runner.capabilities import lacking
from runner.checks.citations import find_order
from runner.checks.existence import to_be_written
from runner.checks.judgement import planned_gates
from runner.counts import refusals
from runner.errors import SeatError, StateError
from runner.model.order import WorkOrder, files_of, load_order
from runner.model.report import ReportPredicate
from runner.model.scalars import UNKNOWN
from runner.model.seat import Container, SeatManifest
from runner.model.verdict import Status
from runner.paths import command, source_root
from runner.steps.seats import absent_here, has_adapter

TAKEN = ("kernels/cpu/", "kernels/cuda/", "recipe/patches/")
"""What a run takes from a frozen candidate. The plugin that dispatches is always the checkout's own: it calls the
incumbent of a shared boot too, so with a candidate's the candidate would be compared with itself, and it calls the
witness. README, "A craftsperson", says what such an order would need."""


def missing(order: WorkOrder, manifest: SeatManifest) -> tuple[str, ...]:
    """Everything that is missing, one line each; empty where the order can be executed."""
    found = []
    if not has_adapter(manifest.adapter):
        found.append(f"seat {manifest.name}: this checkout has no {manifest.adapter} adapter")
    if manifest.container is not None:
        unknown = (*_unknown(manifest.container), *_untuned(manifest, manifest.container))
        found += [f"seat {manifest.name}: {fault}" for fault in unknown]
    found += [f"seat {manifest.name}: {fault}" for fault in absent_here(manifest)]
    target = getattr(order, "target", None)
    found += [f"pin {name} is unknown" for name, pin in (target.pins if target else {}).items() if pin == UNKNOWN]
    found += [f"input {one.name} is still arriving: {one.path}" for one in order.inputs if one.state == "arriving"]
    candidate = getattr(order, "candidate", None)
    if not files_of(order):  # else whoever it is dispatched to brings them
        there = (source_root() / name for name in getattr(candidate, "sources", ()))
        found += [f"source {path} does not exist" for path in there if not path.exists()]
    found += [f"gate {request.name} is planned, not written: {request.planned}" for request in planned_gates(order)]
    found += [
        f"{glob} is taken from no candidate: the plugin calls incumbent and witness, too; "
        "a person merges such a change first, and it is judged once it stands in the checkout"
        for glob in files_of(order)
        if not glob.startswith(TAKEN)
    ]
    for request in order.gates:
        needed = set(request.measure.needs if request.measure else ()) & lacking(manifest)
        if request.planned is None and needed:
            found.append(f"gate {request.name} needs {', '.join(sorted(needed))}, which seat {manifest.name} lacks")
    return tuple(found)


def _unknown(container: Container) -> Iterator[str]:
    """Digests that nobody recorded."""
    if container.digest == UNKNOWN:
        yield f"digest of image {container.image} is unknown"
    for mount in container.mounts:
        if mount.digest == UNKNOWN:
            yield f"digest of {mount.host}, mounted on {mount.inside}, is unknown"


def _untuned(manifest: SeatManifest, container: Container) -> Iterator[str]:
    """Rows that graphs capture and the tuner's cache does not hold: tuning inside a capture ends the engine (FL-27)."""
    sizes, speculative = manifest.arguments.get("cudagraph_capture_sizes"), manifest.arguments.get("speculative_config")
    drafts = speculative.get("num_speculative_tokens", 0) if isinstance(speculative, dict) else 0
    if not isinstance(sizes, list) or not isinstance(drafts, int):
        return
    captured = {size * (1 + drafts) for size in sizes if isinstance(size, int)}
    for mount in container.mounts:
        if mount.tuned is not None and (rows := sorted(captured - set(mount.tuned.rows))):
            yield f"{mount.host} is not tuned for {', '.join(map(str, rows))} rows, which graphs capture"


def require_ready(order: WorkOrder, manifest: SeatManifest) -> None:
    """Raises SeatError (exit code 2) naming everything that is missing."""
    absent = missing(order, manifest)
    if absent:
        raise SeatError(
            f"order {order.id} cannot be executed on seat {manifest.name} yet",
            found="\n    ".join(["", *absent]),
            next_step="`runner plan` shows the draft; a seat and gates that exist make it a run",
        )


def require_written(order: WorkOrder, path: Path, manifest: SeatManifest) -> None:
    """Raises StateError (exit code 2) where the checkout itself is to be judged and a source is not written yet."""
    waits = to_be_written(order)
    if waits and manifest.adapter != "fake":  # which brings its variants itself
        raise StateError(
            "there is nothing to judge yet",
            where=f"order {order.id}: candidate.sources",
            expected="sources in this checkout, or --candidate",
            found=f"{', '.join(waits)} still to be written",
            next_step=f"write it, or have it written: {command('dispatch', path, '--to', 'NAME', '--execute')}",
        )


def require_finished(order: WorkOrder, workspace: Path) -> None:
    """Raises StateError (exit code 2) naming every order that ``scope.only_after`` waits for.

    An order is finished by a verified report that passes, or by the decision that was recorded when it was carried out
    by hand.
    """
    waits_for = order.scope.only_after if order.scope else ()
    if not waits_for:
        return
    book = ledger.load(workspace, load_trust(workspace))
    asked = [each for each in book.of(ReportPredicate) if each[1].order.name in waits_for]
    refused = refusals((entry for entry, _ in asked), book)
    passed = {
        report.order.name for entry, report in asked if report.verdict is Status.PASS and entry.digest not in refused
    }
    if open_still := [name for name in waits_for if name not in passed and not _by_hand(name)]:
        raise StateError(
            "another order has to be finished first",
            where=f"{order.id}: scope.only_after",
            expected="a verified report that passes, of each",
            found=f"none of {', '.join(open_still)}",
        )


def _by_hand(name: str) -> bool:
    path = find_order(name)
    result = load_order(path).order.result if path else None
    return result is not None and result.decision is not None


__all__ = ["missing", "require_finished", "require_ready", "require_written"]
