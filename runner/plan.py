"""From an order and a seat's manifest to the sealed plan: pure, so that anybody can make it again."""

from __future__ import annotations

from dataclasses import replace

from pydantic import JsonValue

from runner.digest import sha256_json
from runner.errors import InputError, SeatError
from runner.gates.registry import gate
from runner.gates.registry import source_digest as gate_digest
from runner.model.order import (
    GateOrder,
    GateRequest,
    KernelOrder,
    OrderFile,
    Primary,
    RecipeOrder,
    RunnableOrder,
    Target,
)
from runner.model.plan import MANIFEST, Plan, PlannedGate, PlannedWindow
from runner.model.seat import SeatManifest
from runner.plan_layout import INCUMBENT_ONLY, NO_READBACK, Layout, Made, boot_order
from runner.plan_parameters import sealed_parameters
from runner.plan_speculation import SPECULATION
from runner.plan_windows import MAKERS, ON_THE_DESK
from serve.instruments.registry import instrument, parse
from serve.instruments.registry import source_digest as instrument_digest

PRODUCT = "product."
"""Before the name of each digest of a recipe's product among a plan's subjects."""


def manifest_digest(manifest: SeatManifest) -> str:
    """SHA-256 of a manifest's canonical JSON."""
    return sha256_json(manifest.model_dump(mode="json"))


def runnable(file: OrderFile) -> RunnableOrder:
    """The order, where it can be executed. Raises InputError where seat or recipe is missing."""
    order = file.order
    target_of(order)
    if isinstance(order, RecipeOrder) and not order.recipe:
        raise InputError(
            "the order does not say what is to be made", where=f"{order.id}: recipe", expected="a recipe", found="none"
        )
    return order


def target_of(order: RunnableOrder) -> Target:
    """Seat and standing pack. Raises InputError for an order without them."""
    if order.target is None:
        raise SeatError(
            "the order names no seat yet, so it cannot be planned or executed",
            where=f"{order.id}: target",
            expected="seat and pack",
            found="none",
            next_step="give the order a target; `runner check` needs none",
        )
    return order.target


def primary_of(order: RunnableOrder) -> Primary | None:
    """The speed metric the order is about; a recipe order has none."""
    return order.primary if isinstance(order, KernelOrder | GateOrder) else None


def layout_of(order: RunnableOrder, manifest: SeatManifest) -> Layout:
    """The order on its seat."""
    candidate = order.candidate if isinstance(order, KernelOrder) else None
    watermarked = any(request.name == "watermark" for request in order.gates)
    recipe = isinstance(order, RecipeOrder)
    claims = tuple(fact for fact in order.facts if fact.status == "standing")
    desk = any(gate.name in ON_THE_DESK and gate.planned is None for gate in order.gates)
    speculation = next((one.windows[SPECULATION] for one in order.gates if SPECULATION in one.windows), None)
    return Layout(
        target_of(order), manifest, candidate, primary_of(order), watermarked, claims, desk, recipe, speculation
    )


def compile_plan(file: OrderFile, manifest: SeatManifest, subjects: dict[str, str], seed_commitment: str) -> Plan:
    """The plan. The same arguments give the same plan, so its digest names what was sealed.

    Raises InputError for an order kind, gate or instrument that cannot be planned.
    """
    order = runnable(file)
    layout, primary = layout_of(order, manifest), primary_of(order)
    ready = [request for request in order.gates if request.planned is None]
    made = _placed(layout, [(request, _make(layout, request)) for request in ready])
    windows = _in_boot_order([window for _, part in made for window in part.own])
    boots = tuple(layout.boot(name) for name in dict.fromkeys(window.boot for window in windows))
    gates = tuple(
        PlannedGate(
            name=request.name,
            version=request.version,
            windows=_reads(part, windows),
            parameters=sealed_parameters(order, manifest, request) | _sealed_product(request, subjects),
        )
        for request, part in made
    )
    seat = manifest_digest(manifest)
    return Plan(
        order=order.id,
        order_digest=file.digest,
        seat=manifest.name,
        seat_digest=seat,
        subjects={**subjects, MANIFEST: seat},
        instruments=_sources(gates, windows),
        variants=layout.variants,
        pairing=primary.pairing if primary else "none",
        pairs=primary.pairs if primary else 0,
        seed_commitment=seed_commitment,
        boots=boots,
        windows=windows,
        gates=gates,
        kill_lines=tuple(line.gate for line in order.kill_lines if line.action == "stop"),
    )


def _make(layout: Layout, request: GateRequest) -> Made:
    if request.name not in MAKERS:
        raise InputError(
            "no windows are known for this gate", where=request.name, expected=", ".join(MAKERS), found=request.name
        )
    return MAKERS[request.name](layout, request)


def _sealed_product(request: GateRequest, subjects: dict[str, str]) -> dict[str, JsonValue]:
    """What the product was when the plan was sealed, so that nothing can be exchanged afterwards."""
    if request.name != "product":
        return {}
    found = {name: digest for name, digest in subjects.items() if name.startswith(PRODUCT)}
    return {"digests": {name.removeprefix(PRODUCT): digest for name, digest in found.items()}}


def _placed(layout: Layout, made: list[tuple[GateRequest, Made]]) -> list[tuple[GateRequest, Made]]:
    """Windows that belong to every boot, now that the boots are known."""
    named = {window.boot for _, part in made for window in part.own}
    used = sorted(named, key=boot_order) or [INCUMBENT_ONLY]
    placed = []
    for request, part in made:
        everywhere = tuple(
            layout.window(f"{request.name}-{boot}", boot, part.in_every_boot, "none", {}, seconds=1)
            for boot in used
            if part.in_every_boot and boot not in NO_READBACK
        )
        placed.append((request, replace(part, own=part.own + everywhere)))
    return placed


def _in_boot_order(windows: list[PlannedWindow]) -> tuple[PlannedWindow, ...]:
    """Windows by boot; inside a boot the live readback first and the speed blocks last, when the engine is warm."""
    rank = {"resolved": 0, "speed": 2}
    return tuple(
        sorted(
            windows,
            key=lambda window: (boot_order(window.boot), rank.get(parse(window.instrument)[0], 1)),
        )
    )


def _reads(part: Made, windows: tuple[PlannedWindow, ...]) -> tuple[str, ...]:
    if part.reads_every_candidate_window:
        return tuple(window.id for window in windows if not window.control)
    return tuple(window.id for window in part.own)


def _sources(gates: tuple[PlannedGate, ...], windows: tuple[PlannedWindow, ...]) -> dict[str, str]:
    """Digest of the source of each gate and instrument, by ``gate/name@version`` and ``instrument/name@version``."""
    found = {f"gate/{one.name}@{one.version}": gate_digest(gate(one.name, one.version)) for one in gates}
    for reference in sorted({window.instrument for window in windows}):
        found[f"instrument/{reference}"] = instrument_digest(instrument(*parse(reference)))
    return found


def plan_digest(plan: Plan) -> str:
    """What seals a plan and keys every draw."""
    return sha256_json(plan.model_dump(mode="json"))


def seconds_of(plan: Plan) -> int:
    """Expected seat time."""
    return sum(boot.seconds for boot in plan.boots) + sum(window.seconds for window in plan.windows)


__all__ = [
    "PRODUCT",
    "compile_plan",
    "layout_of",
    "plan_digest",
    "primary_of",
    "runnable",
    "seconds_of",
    "target_of",
]
