"""Can this order be decided on this seat? All faults at once, each with the path of its field."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from pydantic import ValidationError

from runner.errors import InputError
from runner.gates.registry import gate
from runner.model.order import (
    GateOrder,
    KernelOrder,
    RecipeOrder,
    RunnableOrder,
    SurveyOrder,
    Target,
    WorkOrder,
    load_order,
)
from runner.model.seat import SeatManifest
from runner.plan_parameters import sealed_parameters
from runner.plan_windows import MAKERS, NEEDS_CANDIDATE, NEEDS_LIBRARY
from runner.stats import supports
from runner.steps.seats import load_manifest
from runner.yaml_strict import Mark, read

_MINIMUM_BLOCK_BOOTS = 2


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong."""

    path: tuple[str | int, ...]
    """Field of the order."""
    message: str


@dataclass(frozen=True)
class PlacedFault:
    """A fault and where it was written."""

    place: Mark
    fault: Fault

    def __str__(self) -> str:
        return f"{self.place}: {'.'.join(map(str, self.fault.path))}: {self.fault.message}"


def check_file(path: Path, seat: str = "") -> tuple[PlacedFault, ...]:
    """Faults of one order on its seat (or on ``seat``). Raises InputError where the order cannot be read at all."""
    order = load_order(path).order
    if isinstance(order, SurveyOrder) or order.target is None:
        return ()
    document = read(path)
    faults = check(order, load_manifest(seat or order.target.seat))
    return tuple(PlacedFault(document.locate(fault.path), fault) for fault in faults)


def check(order: WorkOrder, manifest: SeatManifest) -> tuple[Fault, ...]:
    """Every fault of the order on this seat; empty where it can be run."""
    if not isinstance(order, RunnableOrder) or order.target is None:
        return ()
    return (
        *_target(order.target, manifest),
        *(_primary(order, manifest) if isinstance(order, KernelOrder | GateOrder) else _product(order)),
        *_gates(order, manifest),
        *_candidate(order, manifest),
        *_capability(order),
    )


def _target(target: Target, manifest: SeatManifest) -> Iterator[Fault]:
    if target.pack != manifest.pack:
        yield Fault(("target", "pack"), f"the seat serves {manifest.pack!r}, the order is about {target.pack!r}")
    for name, value in target.serve.items():
        if name not in manifest.arguments:
            yield Fault(("target", "serve", name), f"seat {manifest.name} does not set {name}")
        elif manifest.arguments[name] != value:
            yield Fault(
                ("target", "serve", name),
                f"the order asks for {value!r}, seat {manifest.name} starts with {manifest.arguments[name]!r}",
            )


def _primary(order: KernelOrder | GateOrder, manifest: SeatManifest) -> Iterator[Fault]:
    primary = order.primary
    names = {request.name for request in order.gates}
    if primary is None:
        if "speed" in names:
            yield Fault(("gates",), "gate speed needs a primary metric")
        return
    if "speed" not in names:
        yield Fault(("primary",), "a primary metric without the gate speed decides nothing")
    metrics = 1 + len(primary.secondary)
    if not supports(metrics, primary.pairs):
        needed = next(pairs for pairs in range(1, 64) if supports(metrics, pairs))
        yield Fault(
            ("primary", "pairs"),
            f"{primary.pairs} pairs cover the median with 1 − 2^(1−{primary.pairs}); "
            f"{metrics} deciding metric(s) need {needed}",
        )
    elif primary.pairing == "block" and primary.pairs < _MINIMUM_BLOCK_BOOTS:
        yield Fault(("primary", "pairs"), "block pairing spreads its pairs over two boots")
    if Decimal(primary.margin) < Decimal(manifest.noise.a_a_half_width):
        yield Fault(
            ("primary", "margin"),
            f"margin {primary.margin} is below the seat's own A/A half width {manifest.noise.a_a_half_width} "
            f"({manifest.noise.source}): noise alone would decide",
        )
    if primary.pairing == "boot":
        yield Fault(("primary", "pairing"), "pairing by boot is not planned yet: use block")


def _product(order: RecipeOrder) -> Iterator[Fault]:
    if not order.recipe:
        yield Fault(("recipe",), "the order does not say what is to be made")
    if "product" not in {request.name for request in order.gates}:
        yield Fault(("gates",), "gate product is missing: nothing would show what was made and that it was served")


def _gates(order: RunnableOrder, manifest: SeatManifest) -> Iterator[Fault]:
    if not order.gates:
        yield Fault(("gates",), "an order without gates decides nothing")
    for index, request in enumerate(order.gates):
        path = ("gates", index)
        try:
            known = gate(request.name, request.version)
        except InputError as error:
            yield Fault((*path, "name"), f"{error.what} {error.found}; known: {error.expected}")
            continue
        if request.name not in MAKERS:
            yield Fault((*path, "name"), f"no windows are planned for gate {request.name}")
        if isinstance(order, GateOrder) and request.name in NEEDS_CANDIDATE:
            yield Fault((*path, "name"), f"gate {request.name} needs a candidate, a gate order has none")
        if isinstance(order, RecipeOrder) and request.name in NEEDS_LIBRARY:
            yield Fault(
                (*path, "name"), f"gate {request.name} is about a native library, a {order.kind} order has none"
            )
        if isinstance(order, KernelOrder) and request.name == "product":
            yield Fault((*path, "name"), "gate product is about what a recipe made, a kernel order makes nothing")
        try:
            known.Parameters.model_validate(sealed_parameters(order, manifest, request))
        except ValidationError as error:
            for fault in error.errors():
                place = (*path, "parameters", *fault["loc"])
                yield Fault(place, f"{request.name}: {'.'.join(map(str, fault['loc']))}: {fault['msg']}")


def _candidate(order: RunnableOrder, manifest: SeatManifest) -> Iterator[Fault]:
    if not isinstance(order, KernelOrder):
        return
    candidate = order.candidate
    if candidate.variant == candidate.incumbent:
        yield Fault(("candidate", "variant"), "the candidate is the incumbent")
    if not 1 <= candidate.min_rows <= candidate.max_rows:
        yield Fault(("candidate", "max_rows"), f"no rows between {candidate.min_rows} and {candidate.max_rows}")
    # On a desk every launch is the runner's own, and its outputs and the library's count are compared with it.
    proof = "parity" if manifest.adapter == "desk" else "engaged"
    if proof not in {request.name for request in order.gates}:
        yield Fault(("gates",), f"gate {proof} is missing: nothing would show that the candidate ran")


def _capability(order: RunnableOrder) -> Iterator[Fault]:
    for index, need in enumerate(order.capability):
        if need.available == "no" and need.substitute_if_absent is None:
            yield Fault(
                ("capability", index, "available"),
                f"{need.name} is not available and the order names no substitute",
            )
